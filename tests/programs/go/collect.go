// Allocation with many pointers: barriers, assists, finalizers, weak caches and maps of maps.
package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
)

type item struct {
	next  *item
	peers []*item
	name  string
	value int
}

func churn(seed, n int) int {
	var head *item
	table := map[string]*item{}
	var window [64]*item
	state := uint32(seed)
	for i := 0; i < n; i++ {
		state = state*1664525 + 1013904223
		it := &item{next: head, name: strings.Repeat("k", int(state>>28)) + fmt.Sprint(state%997), value: i}
		for j := 0; j < 4; j++ {
			it.peers = append(it.peers, window[(state>>(3*j))%64])
		}
		window[state%64] = it
		table[it.name] = it
		if i%100 == 99 {
			head = nil
		} else {
			head = it
		}
	}
	names := make([]string, 0, len(table))
	for name := range table {
		names = append(names, name)
	}
	sort.Strings(names)
	h := 0
	for _, name := range names {
		h = h*31 + table[name].value + len(name)
		for _, p := range table[name].peers {
			if p != nil {
				h ^= p.value
			}
		}
	}
	return h
}

func main() {
	debug.SetGCPercent(10)
	var all sync.WaitGroup
	sums := make([]int, 8)
	for g := range sums {
		all.Add(1)
		go func(g int) { defer all.Done(); sums[g] = churn(g+1, 20000) }(g)
	}
	all.Wait()
	fmt.Println(sums)
	var finalized int32
	for i := 0; i < 1000; i++ {
		p := &item{value: i}
		runtime.SetFinalizer(p, func(p *item) { atomic.AddInt32(&finalized, 1) })
	}
	for i := 0; i < 50 && atomic.LoadInt32(&finalized) < 900; i++ {
		runtime.GC()
		runtime.Gosched()
	}
	fmt.Println(atomic.LoadInt32(&finalized) >= 900)
	pool := sync.Pool{New: func() any { return new([512]int) }}
	total := 0
	for i := 0; i < 20000; i++ {
		b := pool.Get().(*[512]int)
		b[i%512] = i
		total += b[i%512]
		pool.Put(b)
	}
	fmt.Println(total)
}
