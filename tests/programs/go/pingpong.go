// Goroutines that hand a number to each other: every step is a switch of stacks inside a window.
package main

import (
	"fmt"
	"sync"
)

func ring(n, rounds int) int {
	first := make(chan int)
	in := first
	for i := 0; i < n; i++ {
		out := make(chan int)
		go func(in, out chan int, add int) {
			for v := range in {
				out <- v + add
			}
			close(out)
		}(in, out, i)
		in = out
	}
	sum := 0
	for r := 0; r < rounds; r++ {
		first <- r
		sum += <-in
	}
	close(first)
	return sum
}

func selected(workers, jobs int) (int, int) {
	a, b, done := make(chan int), make(chan int, 3), make(chan struct{})
	var all sync.WaitGroup
	for w := 0; w < workers; w++ {
		all.Add(1)
		go func(w int) {
			defer all.Done()
			for j := 0; j < jobs; j++ {
				select {
				case a <- w*jobs + j:
				case b <- w*jobs + j:
				}
			}
		}(w)
	}
	go func() { all.Wait(); close(done) }()
	sum, count := 0, 0
	for {
		select {
		case v := <-a:
			sum, count = sum+v, count+1
		case v := <-b:
			sum, count = sum+v, count+1
		case <-done:
			for len(b) > 0 {
				sum, count = sum+<-b, count+1
			}
			return sum, count
		}
	}
}

func main() {
	fmt.Println(ring(50, 2000))
	fmt.Println(selected(20, 3000))
	var mu sync.Mutex
	cond := sync.NewCond(&mu)
	turn, total := 0, 0
	var all sync.WaitGroup
	for g := 0; g < 8; g++ {
		all.Add(1)
		go func(g int) {
			defer all.Done()
			for i := 0; i < 1000; i++ {
				mu.Lock()
				for turn != g {
					cond.Wait()
				}
				total += g * i
				turn = (turn + 1) % 8
				cond.Broadcast()
				mu.Unlock()
			}
		}(g)
	}
	all.Wait()
	fmt.Println(total)
}
