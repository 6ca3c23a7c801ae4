! Fields of Fortran: heat in three dimensions, alternating directions, a product by rows.
module fields
  implicit none
  integer, parameter :: dp = kind(1d0)
contains

  subroutine heat(old, new)
    real(dp), intent(in) :: old(:, :, :)
    real(dp), intent(inout) :: new(:, :, :)
    integer :: i, j, k
    do k = 2, size(old, 3) - 1
      do j = 2, size(old, 2) - 1
        do i = 2, size(old, 1) - 1
          new(i, j, k) = old(i, j, k) + 0.1_dp * (old(i - 1, j, k) + old(i + 1, j, k) &
            + old(i, j - 1, k) + old(i, j + 1, k) + old(i, j, k - 1) + old(i, j, k + 1) &
            - 6 * old(i, j, k))
        end do
      end do
    end do
  end subroutine

  ! Thomas' algorithm along columns.
  subroutine solve_columns(u)
    real(dp), intent(inout) :: u(:, :)
    real(dp) :: c(size(u, 1)), m
    integer :: i, j
    do j = 1, size(u, 2)
      c(1) = -0.25_dp
      do i = 2, size(u, 1)
        m = 1 / (1.5_dp + 0.25_dp * c(i - 1))
        c(i) = -0.25_dp * m
        u(i, j) = (u(i, j) + 0.25_dp * u(i - 1, j)) * m
      end do
      do i = size(u, 1) - 1, 1, -1
        u(i, j) = u(i, j) - c(i) * u(i + 1, j)
      end do
    end do
  end subroutine

  ! The same along rows: far apart in memory.
  subroutine solve_rows(u)
    real(dp), intent(inout) :: u(:, :)
    real(dp) :: c(size(u, 2)), m
    integer :: i, j
    do i = 1, size(u, 1)
      c(1) = -0.25_dp
      do j = 2, size(u, 2)
        m = 1 / (1.5_dp + 0.25_dp * c(j - 1))
        c(j) = -0.25_dp * m
        u(i, j) = (u(i, j) + 0.25_dp * u(i, j - 1)) * m
      end do
      do j = size(u, 2) - 1, 1, -1
        u(i, j) = u(i, j) - c(j) * u(i, j + 1)
      end do
    end do
  end subroutine

  subroutine product_by_rows(a, x, y)
    real(dp), intent(in) :: a(:, :), x(:)
    real(dp), intent(out) :: y(:)
    integer :: i, j
    do i = 1, size(a, 1)
      y(i) = 0
      do j = 1, size(a, 2)
        y(i) = y(i) + a(i, j) * x(j)
      end do
    end do
  end subroutine
end module

program main
  use fields
  implicit none
  character(len=32) :: name, number
  integer :: rounds, round
  real(dp), allocatable :: cube(:, :, :), next(:, :, :), plate(:, :), x(:), y(:)
  call get_command_argument(1, name)
  call get_command_argument(2, number)
  read (number, *) rounds
  select case (name)
  case ('heat')
    allocate (cube(84, 84, 84), next(84, 84, 84))
    call random_number(cube)
    next = cube
    do round = 1, rounds
      call heat(cube, next)
      call heat(next, cube)
    end do
    print *, cube(5, 5, 5)
  case ('alternating')
    allocate (plate(700, 620))
    call random_number(plate)
    do round = 1, rounds
      call solve_columns(plate)
      call solve_rows(plate)
    end do
    print *, plate(5, 5)
  case ('by-rows')
    allocate (plate(1500, 900), x(900), y(1500))
    call random_number(plate)
    call random_number(x)
    do round = 1, rounds
      call product_by_rows(plate, x, y)
    end do
    print *, y(5)
  case default
    stop 2
  end select
end program
