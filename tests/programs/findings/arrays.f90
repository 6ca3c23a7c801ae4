! Walks in Fortran, whose arrays are stored by columns.
program arrays
    use iso_fortran_env, only: real64
    implicit none
    integer, parameter :: side = 4096, many = 8388608
    type particle
        real(real64) :: x, y, z, vx, vy, vz, mass, charge
    end type
    real(real64), allocatable :: grid(:, :), values(:)
    integer, allocatable :: picks(:)
    type(particle), allocatable :: particles(:)
    character(len=32) :: what, text
    real(real64) :: seconds, total, draw
    real(real64) :: start, now
    integer :: i
    call get_command_argument(1, what)
    call get_command_argument(2, text)
    seconds = 0.5d0
    if (len_trim(text) > 0) read (text, *) seconds
    total = 0
    select case (trim(what))
    case ('rows')
        allocate (grid(side, side))
        grid = 1
    case ('small_rows')
        allocate (grid(32, 32))
        grid = 1
    case ('gather')
        allocate (values(many), picks(many))
        values = 1
        do i = 1, many
            call random_number(draw)
            picks(i) = 1 + int(draw*(many - 1))
        end do
    case ('field')
        allocate (particles(many/4))
        particles%mass = 1
    end select
    call cpu_time(start)
    do
        call cpu_time(now)
        if (now - start > seconds) exit
        select case (trim(what))
        case ('rows', 'small_rows')
            total = total + by_rows(grid)
        case ('gather')
            total = total + pick(values, picks)
        case ('field')
            total = total + masses(particles)
        case default
            stop 2
        end select
    end do
    if (total < 0) print *, total
contains
    function by_rows(a) result(s)
        real(real64), intent(in) :: a(:, :)
        real(real64) :: s
        integer :: i, j
        s = 0
        do i = 1, size(a, 1)
            do j = 1, size(a, 2)
                s = s + a(i, j) ! planted: rows
            end do
        end do
    end function
    function pick(v, p) result(s)
        real(real64), intent(in) :: v(:)
        integer, intent(in) :: p(:)
        real(real64) :: s
        integer :: i
        s = 0
        do i = 1, size(p)
            s = s + v(p(i)) ! planted: gather
        end do
    end function
    function masses(p) result(s)
        type(particle), intent(in) :: p(:)
        real(real64) :: s
        integer :: i
        s = 0
        do i = 1, size(p)
            s = s + p(i)%mass ! planted: field
        end do
    end function
end program
