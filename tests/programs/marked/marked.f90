! One phase that loads 1,000 numbers; far more are loaded outside.
program marked
   use mgz
   implicit none
   real(8), volatile :: numbers(1000)
   real(8) :: total
   integer :: i, round
   numbers = 1
   total = 0
   do round = 1, 50
      do i = 1, 1000
         total = total + numbers(i)
      end do
   end do
   call mgz_start()
   do i = 1, 1000
      total = total + numbers(i)
   end do
   call mgz_stop()
   do i = 1, 1000
      total = total + numbers(i)
   end do
   print *, total
end program marked
