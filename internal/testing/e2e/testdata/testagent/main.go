// Command testagent runs in sandboxes as their agent.
package main

import (
	"os"

	"github.com/agbox/agbox/internal/testing/testagent"
)

func main() {
	os.Exit(testagent.Run(testagent.Config{
		Args: os.Args[1:], In: os.Stdin, Out: os.Stdout, Sessions: "/workspace/.sessions/",
	}))
}
