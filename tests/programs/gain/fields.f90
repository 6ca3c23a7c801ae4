! Pairs in Fortran: search for a pivot, planes of a power of two, species of atoms.
module fields_of_pairs
  use iso_fortran_env, only: int64
  implicit none
  integer, parameter :: order = 1500, atoms = 2**18
  type atom
    real(8) :: place(3), speed(3), force(3), mass
    integer :: species, cell
  end type
contains

  ! The largest element, row by row.
  subroutine pivot_by_rows(matrix, largest)
    real(8), intent(in) :: matrix(:, :)
    real(8), intent(out) :: largest
    integer :: i, j
    largest = 0
    do i = 1, size(matrix, 1)
      do j = 1, size(matrix, 2)
        if (abs(matrix(i, j)) >= largest) largest = abs(matrix(i, j))
      end do
    end do
  end subroutine

  ! The largest element, column by column.
  subroutine pivot_by_columns(matrix, largest)
    real(8), intent(in) :: matrix(:, :)
    real(8), intent(out) :: largest
    integer :: i, j
    largest = 0
    do j = 1, size(matrix, 2)
      do i = 1, size(matrix, 1)
        if (abs(matrix(i, j)) >= largest) largest = abs(matrix(i, j))
      end do
    end do
  end subroutine

  ! A line through the columns of a plane whose columns are `length` apart.
  subroutine cross(plane, length, sum)
    integer, intent(in) :: length
    real(8), intent(in) :: plane(length, 256)
    real(8), intent(inout) :: sum
    integer :: i, j
    do i = 1, 32
      do j = 1, 256
        sum = sum + plane(i, j)
      end do
    end do
  end subroutine

  ! Atoms of a species.
  subroutine count_atoms(all, found)
    type(atom), intent(in) :: all(:)
    integer(int64), intent(inout) :: found
    integer :: i
    do i = 1, size(all)
      if (all(i)%species == 3) found = found + 1
    end do
  end subroutine

  subroutine count_species(species, found)
    integer, intent(in) :: species(:)
    integer(int64), intent(inout) :: found
    integer :: i
    do i = 1, size(species)
      if (species(i) == 3) found = found + 1
    end do
  end subroutine
end module

program fields
  use fields_of_pairs
  implicit none
  character(32) :: name, version
  logical :: after
  real(8), allocatable :: matrix(:, :), plane(:, :)
  type(atom), allocatable :: all(:)
  integer, allocatable :: species(:)
  real(8) :: largest, sum = 0
  integer(int64) :: found = 0
  integer :: i, j, r, length
  call get_command_argument(1, name)
  call get_command_argument(2, version)
  after = version == 'after'
  select case (name)
  case ('pivot')
    allocate (matrix(order, order))
    do j = 1, order
      do i = 1, order
        matrix(i, j) = modulo(i * 7 + j * 3, 1000)
      end do
    end do
    do r = 1, 200
      if (after) then
        call pivot_by_columns(matrix, largest)
      else
        call pivot_by_rows(matrix, largest)
      end if
      sum = sum + largest
    end do
  case ('planes')
    length = merge(1032, 1024, after)
    allocate (plane(length, 256), source=1.0d0)
    do r = 1, 60000
      call cross(plane, length, sum)
    end do
  case ('species')
    allocate (all(atoms), species(atoms))
    do i = 1, atoms
      species(i) = modulo(i, 11)
      all(i)%species = species(i)
    end do
    do r = 1, 2000
      if (after) then
        call count_species(species, found)
      else
        call count_atoms(all, found)
      end if
    end do
    sum = real(found, 8)
  case default
    stop 2
  end select
  print '(es20.10)', sum
end program
