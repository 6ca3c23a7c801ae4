! A product of matrices, and a stencil.
program product
  implicit none
  integer, parameter :: n = 120
  real(8), save :: a(n, n), b(n, n), c(n, n)
  character(len=16) :: text
  integer :: round, rounds, i, j, k
  rounds = 0
  if (command_argument_count() > 0) then
    call get_command_argument(1, text)
    read (text, *) rounds
  end if
  do round = 1, rounds
    do i = 1, n
      do j = 1, n
        do k = 1, n
          c(i, j) = c(i, j) + a(i, k) * b(k, j)
        end do
      end do
    end do
    do j = 2, n - 1
      do i = 2, n - 1
        a(i, j) = 0.25d0 * (c(i - 1, j) + c(i + 1, j) + c(i, j - 1) + c(i, j + 1))
      end do
    end do
  end do
  if (c(7, 7) == 7) stop 1
end program product
