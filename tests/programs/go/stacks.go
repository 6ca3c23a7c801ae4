// Deep recursion: stacks grow (and are copied) and shrink at collections, with pointers to the
// stack and frames of many sizes.
package main

import (
	"fmt"
	"runtime"
	"sync"
)

type node struct{ left, right *node }

func build(depth int) *node {
	if depth == 0 {
		return nil
	}
	return &node{build(depth - 1), build(depth - 1)}
}

func (n *node) count() int {
	if n == nil {
		return 0
	}
	return 1 + n.left.count() + n.right.count()
}

// The pointer leads into an older frame, which moves with the stack.
func deep(n int, up *int, acc [16]int) int {
	var own [16]int
	for i := range own {
		own[i] = acc[i] + n*i
	}
	*up += own[n%16]
	if n == 0 {
		return *up
	}
	mine := *up
	r := deep(n-1, &mine, own)
	*up = mine ^ r
	return r + own[3]
}

//go:noinline
func wide(n int) int {
	var page [3000]byte
	for i := range page {
		page[i] = byte(n + i)
	}
	if n == 0 {
		return int(page[17])
	}
	return wide(n-1) + int(page[n%3000])
}

func main() {
	fmt.Println(build(16).count())
	var all sync.WaitGroup
	results := make([]int, 40)
	for g := range results {
		all.Add(1)
		go func(g int) {
			defer all.Done()
			for round := 0; round < 10; round++ {
				up := g
				results[g] += deep(500+50*g, &up, [16]int{g, round}) + up
				results[g] += wide(100 + g)
				if round%3 == 0 {
					runtime.GC()
				}
				runtime.Gosched()
			}
		}(g)
	}
	all.Wait()
	h := uint64(14695981039346656037)
	for _, r := range results {
		h = (h ^ uint64(r)) * 1099511628211
	}
	fmt.Println(h)
}
