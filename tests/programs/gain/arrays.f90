! Pairs in Fortran: order of loops, derived types, interleaved arrays, padding.
module pairs
  use iso_fortran_env, only: int64
  implicit none
  integer, parameter :: side = 2048, count = 2**19
  type cell
    real(8) :: pressure, density, energy, flux(5)
  end type
contains

  subroutine by_rows(grid, sum)
    real(8), intent(in) :: grid(:, :)
    real(8), intent(inout) :: sum
    integer :: i, j
    do i = 1, side
      do j = 1, side
        sum = sum + grid(i, j)
      end do
    end do
  end subroutine

  subroutine by_columns(grid, sum)
    real(8), intent(in) :: grid(:, :)
    real(8), intent(inout) :: sum
    integer :: i, j
    do j = 1, side
      do i = 1, side
        sum = sum + grid(i, j)
      end do
    end do
  end subroutine

  subroutine densities(cells, sum)
    type(cell), intent(in) :: cells(:)
    real(8), intent(inout) :: sum
    integer :: i
    do i = 1, count
      sum = sum + cells(i)%density
    end do
  end subroutine

  subroutine densities_split(density, sum)
    real(8), intent(in) :: density(:)
    real(8), intent(inout) :: sum
    integer :: i
    do i = 1, count
      sum = sum + density(i)
    end do
  end subroutine

  subroutine pick(values, order, sum)
    real(8), intent(in) :: values(:)
    integer, intent(in) :: order(:)
    real(8), intent(inout) :: sum
    integer :: i
    do i = 1, size(order)
      sum = sum + values(order(i))
    end do
  end subroutine

  subroutine pick_single(values, order, sum)
    real(4), intent(in) :: values(:)
    integer, intent(in) :: order(:)
    real(8), intent(inout) :: sum
    integer :: i
    do i = 1, size(order)
      sum = sum + values(order(i))
    end do
  end subroutine

  integer function below(n)
    integer, intent(in) :: n
    integer(int64), save :: state = 88172645463325252_int64
    state = ieor(state, ishft(state, 13))
    state = ieor(state, ishft(state, -7))
    state = ieor(state, ishft(state, 17))
    below = int(modulo(state, int(n, int64)))
  end function
end module

program arrays
  use pairs
  implicit none
  character(32) :: name, version
  logical :: after
  real(8), allocatable :: grid(:, :), density(:), values(:)
  real(4), allocatable :: single(:)
  integer, allocatable :: order(:)
  type(cell), allocatable :: cells(:)
  real(8) :: sum = 0
  integer :: i, r
  call get_command_argument(1, name)
  call get_command_argument(2, version)
  after = version == 'after'
  select case (name)
  case ('rows')
    allocate (grid(side, side), source=1.0d0)
    do r = 1, 40
      if (after) then
        call by_columns(grid, sum)
      else
        call by_rows(grid, sum)
      end if
    end do
  case ('cells')
    allocate (cells(count), density(count))
    do i = 1, count
      cells(i) = cell(1, modulo(i, 7), 2, 3)
      density(i) = modulo(i, 7)
    end do
    do r = 1, 1000
      if (after) then
        call densities_split(density, sum)
      else
        call densities(cells, sum)
      end if
    end do
  case ('order')
    allocate (values(8 * count), single(8 * count), order(8 * count))
    do i = 1, 8 * count
      values(i) = modulo(i, 3)
      single(i) = modulo(i, 3)
      order(i) = below(8 * count) + 1
    end do
    do r = 1, 40
      if (after) then
        call pick_single(single, order, sum)
      else
        call pick(values, order, sum)
      end if
    end do
  case default
    stop 2
  end select
  print '(es20.10)', sum
end program
