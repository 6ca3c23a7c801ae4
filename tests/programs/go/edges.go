// System calls about masks, stacks and handlers at every depth of small stacks, beside the stacks of
// others: code that takes more room than the runtime guarantees would overwrite these.
package main

import (
	"fmt"
	"sync"
	"syscall"
	"unsafe"
)

//go:noinline
func narrow(n int, mask *[2]uint64) uint64 {
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, 0, 0, uintptr(unsafe.Pointer(mask)), 8, 0, 0)
	if n == 0 {
		return mask[0]
	}
	return narrow(n-1, mask) + mask[0]
}

//go:noinline
func odd(n int, stack *[3]uint64) uint64 {
	var pad [5]uint64
	pad[n%5] = uint64(n)
	_, _, e := syscall.RawSyscall(syscall.SYS_SIGALTSTACK, 0, uintptr(unsafe.Pointer(stack)), 0)
	if n == 0 {
		return uint64(e) + pad[0]
	}
	return odd(n-1, stack) + uint64(e) + pad[n%5]
}

type action struct{ handler, flags, restorer, mask uint64 }

//go:noinline
func handlers(n int, a *action) uint64 {
	_, _, e := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, 10, 0, uintptr(unsafe.Pointer(a)), 8, 0, 0)
	if n == 0 {
		return a.mask
	}
	return handlers(n-1, a) + uint64(e)
}

//go:noinline
func plain(n int) int {
	pid, _, _ := syscall.RawSyscall(syscall.SYS_GETPID, 0, 0, 0)
	if n == 0 {
		return int(pid)
	}
	if other := plain(n - 1); other != int(pid) {
		panic(other)
	}
	return int(pid)
}

//go:noinline
func parked(wait chan int, mark uint64, all *sync.WaitGroup) {
	var kept [8]uint64
	for i := range kept {
		kept[i] = mark * uint64(i+1)
	}
	<-wait
	for i, k := range kept {
		if k != mark*uint64(i+1) {
			panic(fmt.Sprint("a stack was overwritten: ", k))
		}
	}
	all.Done()
}

func main() {
	sum := uint64(0)
	for round := 0; round < 30; round++ {
		var all, busy sync.WaitGroup
		wait := make(chan int)
		results := make([]uint64, 64)
		for g := 0; g < 64; g++ {
			all.Add(1)
			go parked(wait, uint64(g+1), &all)
			busy.Add(1)
			go func(g int) {
				defer busy.Done()
				depth := 4 + (g+round)%30
				switch g % 4 {
				case 0:
					results[g] = narrow(depth, new([2]uint64))
				case 1:
					results[g] = odd(depth, new([3]uint64))
				case 2:
					results[g] = handlers(depth, new(action))
				default:
					plain(depth)
				}
			}(g)
		}
		busy.Wait()
		close(wait)
		all.Wait()
		for g, r := range results {
			sum += r * uint64(g+1)
		}
	}
	fmt.Println(sum)
}
