// Signals that the program asks for, tickers, and programs that it starts.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 1 {
		fmt.Println("child", os.Args[1])
		return
	}
	got := make(chan os.Signal, 1000)
	signal.Notify(got, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGHUP)
	counts := map[os.Signal]int{}
	x := uint64(1)
	for i := 0; i < 300; i++ {
		for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM} {
			syscall.Kill(syscall.Getpid(), s)
			for j := 0; j < 2000; j++ {
				x = x*6364136223846793005 + 1
			}
			counts[<-got]++
		}
	}
	signal.Stop(got)
	signal.Ignore(syscall.SIGHUP)
	syscall.Kill(syscall.Getpid(), syscall.SIGHUP)
	fmt.Println(counts[syscall.SIGUSR1], counts[syscall.SIGUSR2], counts[syscall.SIGALRM], x)
	tick := time.NewTicker(time.Millisecond)
	timeout := time.After(30 * time.Second)
	for n := 0; n < 200; n++ {
		select {
		case <-tick.C:
		case <-timeout:
			panic("the ticker has stopped")
		}
	}
	tick.Stop()
	done := make(chan string)
	for i := 0; i < 6; i++ {
		go func(i int) {
			runtime.LockOSThread()
			out, err := exec.Command(os.Args[0], fmt.Sprint(i)).CombinedOutput()
			done <- fmt.Sprint(string(out), err)
		}(i)
	}
	all := map[string]bool{}
	for i := 0; i < 6; i++ {
		all[<-done] = true
	}
	fmt.Printf("%q\n", all)
	err := exec.Command("/nonexistent").Run()
	fmt.Println(err)
	out, err := exec.Command("/bin/sh", "-c", "kill -TERM $$").CombinedOutput()
	fmt.Println(string(out), err)
}
