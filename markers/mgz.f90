! Marks the phases of a program that mgz-record records, see mgz.h:
!
!     use mgz
!     call mgz_start()
!     ...
!     call mgz_stop()
!
! Compile it with mgz_fortran.c: cc -c mgz_fortran.c; gfortran mgz.f90 program.f90 mgz_fortran.o
module mgz
   use, intrinsic :: iso_c_binding
   implicit none
   private
   public :: mgz_start, mgz_stop

   interface
      ! A phase begins.
      subroutine mgz_start() bind(c, name='mgz_start_')
      end subroutine mgz_start

      ! The phase ends.
      subroutine mgz_stop() bind(c, name='mgz_stop_')
      end subroutine mgz_stop
   end interface
end module mgz
