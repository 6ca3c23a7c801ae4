--  Tables, sorting, exceptions, controlled objects and tasks. The argument says how much; "mistake" ends by an exception that nobody handles.
with Ada.Command_Line;
with Ada.Containers.Ordered_Maps;
with Ada.Containers.Vectors;
with Ada.Text_IO;
with Interfaces; use Interfaces;

procedure Work is
   Odd : exception;

   package Maps is new Ada.Containers.Ordered_Maps (Unsigned_64, Unsigned_64);
   package Lists is new Ada.Containers.Vectors (Natural, Unsigned_64);
   package Sorting is new Lists.Generic_Sorting;

   function Mix (X : Unsigned_64) return Unsigned_64 is
      Y : constant Unsigned_64 := (X xor Shift_Right (X, 31)) * 16#9e3779b97f4a7c15#;
   begin
      return Y xor Shift_Right (Y, 29);
   end Mix;

   function Checked (N : Unsigned_64) return Unsigned_64 is
   begin
      if N mod 7 = 3 then
         raise Odd with N'Image;
      end if;
      return N / 2;
   end Checked;

   function Work_On (Seed : Unsigned_64; N : Unsigned_64) return Unsigned_64 is
      H     : Unsigned_64 := Seed;
      Words : Maps.Map;
   begin
      for I in 0 .. N - 1 loop
         declare
            Key     : constant Unsigned_64 := Mix (Seed + I) mod (N / 4 + 1);
            Garbage : Lists.Vector;
         begin
            if Words.Contains (Key) then
               Words.Replace (Key, Words.Element (Key) + I);
            else
               Words.Insert (Key, I);
            end if;
            for X in 1 .. I mod 50 loop
               Garbage.Append (Mix (X + I));
            end loop;
            Sorting.Sort (Garbage);
            for X of Garbage loop
               H := H xor X;
            end loop;
            H := H + Checked (I);
         exception
            when Odd => H := H + Mix (I);
         end;
      end loop;
      for E of Words loop
         H := Mix (H + E);
      end loop;
      return H;
   end Work_On;

   Results : array (1 .. 4) of Unsigned_64 := (others => 0);

   procedure All_Of_It (N : Unsigned_64) is
      task type Worker is
         entry Start (Number : Integer);
      end Worker;
      task body Worker is
         Own : Integer;
      begin
         accept Start (Number : Integer) do
            Own := Number;
         end Start;
         Results (Own) := Work_On (Unsigned_64 (Own), N);
      end Worker;
      Workers : array (1 .. 4) of Worker;
   begin
      for T in Workers'Range loop
         Workers (T).Start (T);
      end loop;
   end All_Of_It;

   Zero : Unsigned_64 := 3;
begin
   if Ada.Command_Line.Argument (1) = "mistake" then
      Zero := Checked (Zero);
   end if;
   All_Of_It (Unsigned_64'Value (Ada.Command_Line.Argument (1)) * 2000);
   for R of Results loop
      Ada.Text_IO.Put_Line (R'Image);
   end loop;
   Ada.Command_Line.Set_Exit_Status (5);
end Work;
