// A server and clients on the loopback device, with timers, deadlines and the network poller.
package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

type message struct {
	Id   int
	Text string
	List []float64
}

func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			r := bufio.NewReader(c)
			for {
				line, err := r.ReadBytes('\n')
				if err != nil {
					return
				}
				c.Write(bytes.ToUpper(line))
			}
		}()
	}
}

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go echo(l)
	var all sync.WaitGroup
	sums := make([]int, 8)
	for g := range sums {
		all.Add(1)
		go func(g int) {
			defer all.Done()
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				panic(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(60 * time.Second))
			r := bufio.NewReader(c)
			for i := 0; i < 200; i++ {
				fmt.Fprintf(c, "client %d line %d\n", g, i)
				line, err := r.ReadString('\n')
				if err != nil {
					panic(err)
				}
				for _, b := range []byte(line) {
					sums[g] = sums[g]*31 + int(b)
				}
			}
		}(g)
	}
	all.Wait()
	l.Close()
	fmt.Println(sums)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m message
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			http.Error(w, err.Error(), 400)
			return
		}
		m.Text += "!"
		z := gzip.NewWriter(w)
		json.NewEncoder(z).Encode(m)
		z.Close()
	}))
	defer s.Close()
	total := 0.0
	for i := 0; i < 100; i++ {
		body, _ := json.Marshal(message{i, "text", []float64{float64(i), 0.5}})
		r, err := http.Post(s.URL, "application/json", bytes.NewReader(body))
		if err != nil {
			panic(err)
		}
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			panic(err)
		}
		text, _ := io.ReadAll(z)
		r.Body.Close()
		var m message
		if err := json.Unmarshal(text, &m); err != nil {
			panic(err)
		}
		total += m.List[0]*m.List[1] + float64(len(m.Text))
	}
	fmt.Println(total)
}
