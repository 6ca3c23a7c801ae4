! Fortran: whole-array expressions, sections with strides, allocatables, assumed shape, derived types.
program arrays
  implicit none
  type point
    real(8) :: x, y
    integer :: tag
  end type
  integer, parameter :: n = 20
  real(8) :: a(n, n), b(n, n), c(n, n)
  integer, allocatable :: list(:)
  type(point) :: points(30)
  integer :: i, j
  integer(8) :: total
  do j = 1, n
    do i = 1, n
      a(i, j) = mod(i * 7 + j * 3, 11)
      b(i, j) = mod(i * 5 - j * 2, 13)
    end do
  end do
  c = matmul(a, transpose(b)) + 2 * a(n:1:-1, :)
  allocate (list(100))
  do i = 1, 100
    list(i) = mod(i * 37, 101)
  end do
  call sort(list(1:100:3))
  do i = 1, 30
    points(i) = point(list(i), list(101 - i), mod(i, 3))
  end do
  total = int(sum(c) + sum(points%x * points%tag), 8) + sum(list * [(i, i=1, 100)])
  total = total + count(list > 50) + maxloc(list, 1) + weighted(c(::2, 3))
  print '(a,1x,i0)', 'arrays', total
contains
  subroutine sort(v)
    integer, intent(inout) :: v(:)
    integer :: p, q, t
    do p = 2, size(v)
      t = v(p)
      q = p - 1
      do while (q >= 1)
        if (v(q) <= t) exit
        v(q + 1) = v(q)
        q = q - 1
      end do
      v(q + 1) = t
    end do
  end subroutine
  integer(8) function weighted(v)
    real(8), intent(in) :: v(:)
    integer :: p
    weighted = 0
    do p = 1, size(v)
      weighted = weighted + int(v(p)) * p
    end do
  end function
end program
