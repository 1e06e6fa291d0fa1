// Command hostilepid1 is agbox-shim whose PID 1, in a sandbox with the variable HOSTILE, also attacks the socket of agboxd: it is the process that
// agboxd trusts. The variable is "connections" or "streams"; all attacks of one kind run at once, and each as fast as it can.
package main

import (
	"bytes"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/agbox/agbox/internal/channel"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/shim"
)

// heldConns is the number of connections that an attack holds open.
const heldConns = 1000

var socket = filepath.Join(execjournal.ContainerCtl, execjournal.ExecDir, channel.SocketName)

func main() {
	if kind := attacks[os.Getenv("HOSTILE")]; os.Getpid() == 1 && kind != nil {
		go func() {
			// Only once the sandbox is READY, and with more than the one thread that the shim asks for.
			time.Sleep(5 * time.Second)
			runtime.GOMAXPROCS(4)
			for _, attack := range kind {
				go func() {
					for {
						if conn, err := net.Dial("unix", socket); err == nil {
							attack(conn)
						} else {
							time.Sleep(time.Millisecond) // the queue of the listener is full
						}
					}
				}()
			}
		}()
	}
	os.Exit(shim.Main(os.Args[1:]))
}

var attacks = map[string][]func(net.Conn){
	"connections": {reconnect, hold, forge, oversize, refuseAll},
	"streams":     {answerAll},
}

func hello(conn net.Conn, token string) error {
	return channel.Write(conn, channel.Frame{Kind: channel.Hello, Number: channel.Version, Text: token})
}

// reconnect takes the place of the control connection and leaves.
func reconnect(conn net.Conn) {
	_ = hello(conn, "")
	conn.Close()
}

var held []net.Conn

// hold writes nothing, and keeps its connections.
func hold(conn net.Conn) {
	if held = append(held, conn); len(held) > heldConns {
		held[0].Close()
		held = slices.Clone(held[1:])
	}
}

// forge opens a stream that was not requested.
func forge(conn net.Conn) {
	_ = hello(conn, "AAAAAAAAAAAAAAAAAAAAAAAAAA")
	_, _ = conn.Read(make([]byte, 1))
	conn.Close()
}

// oversize announces a frame of 4 GiB.
func oversize(conn net.Conn) {
	_, _ = conn.Write([]byte{0xff, 0xff, 0xff, 0xff})
	_, _ = conn.Write(make([]byte, 1<<20))
	conn.Close()
}

// refuseAll floods the control connection with answers to nothing.
func refuseAll(conn net.Conn) {
	flood := bytes.Repeat((&channel.Frame{Kind: channel.Refuse, Text: "nothing", Data: make([]byte, 100)}).Append(nil), 1000)
	err := hello(conn, "")
	for err == nil {
		_, err = conn.Write(flood)
	}
	conn.Close()
}

// answerAll is the control connection as long as it can, and opens what the daemon asks for. In turn it stalls, writes garbage, and lies.
func answerAll(conn net.Conn) {
	defer conn.Close()
	if hello(conn, "") != nil {
		return
	}
	r := channel.NewReader(conn)
	for turn := 0; ; turn++ {
		open, err := r.Read()
		if err != nil {
			return
		}
		stream, err := net.Dial("unix", socket)
		if err != nil || hello(stream, open.Text) != nil {
			continue
		}
		go func() {
			defer stream.Close()
			switch turn % 3 {
			case 0:
				_, _ = io.ReadFull(stream, make([]byte, 64)) // and no more
				time.Sleep(time.Minute)
			case 1:
				_, _ = stream.Write(bytes.Repeat([]byte{0, 0, 0, 9, 0xff}, 1000))
			case 2:
				lie(stream, open.Exec != "")
			}
		}()
	}
}

// lie sends an endless file, or acknowledges input that was never sent and prints at offsets that do not exist.
func lie(stream net.Conn, exec bool) {
	flood := []channel.Frame{{Kind: channel.Data, Data: make([]byte, channel.MaxData)}}
	first := channel.Frame{Kind: channel.Result, Data: []byte(`{"name":"passwd","path":"/etc/passwd","type":"f","size":9223372036854775807}`)}
	if exec {
		first = channel.Frame{Kind: channel.Attached}
		for _, offset := range []int64{math.MinInt64, -1, 1 << 40, math.MaxInt64} {
			flood = append(flood, channel.Frame{Kind: channel.StdinAck, Offset: offset},
				channel.Frame{Kind: channel.Output, Stream: channel.Stdout, Offset: offset, Data: make([]byte, channel.MaxData)})
		}
	}
	err := channel.Write(stream, first)
	for i := 0; err == nil; i++ {
		err = channel.Write(stream, flood[i%len(flood)])
	}
}
