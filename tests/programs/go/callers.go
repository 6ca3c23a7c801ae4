// The program looks at its own stack: names and lines are those of the original, in every goroutine.
package main

import (
	"bytes"
	"fmt"
	"regexp"
	"runtime"
	"runtime/pprof"
	"sort"
	"strings"
	"sync"
)

//go:noinline
func path(n int) string {
	if n > 0 {
		return path(n - 1)
	}
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(0, pcs)])
	var out []string
	for {
		f, more := frames.Next()
		out = append(out, fmt.Sprintf("%s:%d", f.Function, f.Line))
		if !more {
			return strings.Join(out, " ")
		}
	}
}

func work(n int) (s int) {
	m := map[int]string{}
	for i := 0; i < n; i++ {
		m[i%1000] = fmt.Sprint(i)
		s += len(m[i/2%1000])
	}
	return s
}

func main() {
	var profile bytes.Buffer
	if err := pprof.StartCPUProfile(&profile); err != nil {
		panic(err)
	}
	seen := map[string]int{}
	for i := 0; i < 2000; i++ {
		seen[path(i%5)]++
	}
	var keys []string
	for k := range seen {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		fmt.Println(seen[k], k)
	}
	var all sync.WaitGroup
	sums := make([]int, 4)
	for g := range sums {
		all.Add(1)
		go func(g int) { defer all.Done(); sums[g] = work(100000 + g) }(g)
	}
	dumps := 0
	for i := 0; i < 50; i++ {
		buf := make([]byte, 1<<16)
		text := string(buf[:runtime.Stack(buf, true)])
		if strings.Contains(text, "main.main()") && !regexp.MustCompile(`unknown|bad pc|\?\?\?`).MatchString(text) {
			dumps++
		}
	}
	all.Wait()
	pprof.StopCPUProfile()
	fmt.Println(sums, dumps, profile.Len() > 0)
	_, file, line, ok := runtime.Caller(0)
	fmt.Println(file[strings.LastIndexByte(file, '/')+1:], line, ok)
}
