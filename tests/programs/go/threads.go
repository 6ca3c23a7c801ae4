// Many threads that begin and end, goroutines that are bound to one, system calls that block.
package main

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

func main() {
	var all sync.WaitGroup
	sums := make([]int, 200)
	for g := range sums {
		all.Add(1)
		go func(g int) {
			defer all.Done()
			// The thread ends with its goroutine.
			runtime.LockOSThread()
			table := make([]int, 500)
			for i := 0; i < 20000; i++ {
				table[(i*7+g)%500] += i
			}
			for _, v := range table {
				sums[g] = sums[g]*31 + v
			}
		}(g)
	}
	all.Wait()
	h := 0
	for _, s := range sums {
		h = h*131 + s
	}
	fmt.Println(h)
	var pipes [20][2]*os.File
	for i := range pipes {
		r, w, err := os.Pipe()
		if err != nil {
			panic(err)
		}
		pipes[i] = [2]*os.File{r, w}
	}
	results := make([]int, len(pipes))
	for i := range pipes {
		all.Add(2)
		go func(i int) {
			defer all.Done()
			b := make([]byte, 16)
			for n := 0; n < 100; n++ {
				k, _ := pipes[i][0].Read(b)
				results[i] += k
			}
		}(i)
		go func(i int) {
			defer all.Done()
			for n := 0; n < 100; n++ {
				pipes[i][1].Write([]byte("0123456789abcdef"))
			}
		}(i)
	}
	for i := 0; i < 8; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			t := syscall.Timespec{Nsec: 2000000}
			for n := 0; n < 20; n++ {
				syscall.Nanosleep(&t, nil)
			}
		}()
	}
	all.Wait()
	fmt.Println(results)
	deadline := time.Now().Add(50 * time.Millisecond)
	n := 0
	for time.Now().Before(deadline) {
		n++
	}
	fmt.Println(n > 0, runtime.NumGoroutine())
}
