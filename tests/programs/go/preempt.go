// Loops without calls, which only signals can interrupt, on one processor and on several, while
// collections stop the world.
package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

//go:noinline
func spin(a []uint64, rounds int) uint64 {
	s := uint64(1)
	for r := 0; r < rounds; r++ {
		for i := range a {
			s = s*6364136223846793005 + a[(s>>33)%uint64(len(a))] + uint64(i)
		}
	}
	return s
}

//go:noinline
func floats(a []float64, rounds int) float64 {
	x, y, z := 1.0, 2.0, 3.0
	for r := 0; r < rounds; r++ {
		for _, v := range a {
			x, y, z = y*0.5+v, z*0.25+x, x*0.125+v*y*1e-9
		}
	}
	return x + y + z
}

func main() {
	a := make([]uint64, 1<<14)
	f := make([]float64, 1<<12)
	for i := range a {
		a[i] = uint64(i) * 2654435761
	}
	for i := range f {
		f[i] = float64(i) / 3
	}
	for _, procs := range []int{1, 2, 4} {
		runtime.GOMAXPROCS(procs)
		var stop int32
		go func() {
			for atomic.LoadInt32(&stop) == 0 {
				runtime.GC()
				time.Sleep(200 * time.Microsecond)
			}
		}()
		var all sync.WaitGroup
		ints, reals := make([]uint64, 6), make([]float64, 6)
		for g := range ints {
			all.Add(1)
			go func(g int) {
				defer all.Done()
				ints[g] = spin(a, 60+g)
				reals[g] = floats(f, 100+g)
			}(g)
		}
		all.Wait()
		atomic.StoreInt32(&stop, 1)
		fmt.Println(procs, ints, reals)
	}
}
