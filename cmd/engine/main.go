// Command engine is the binary of an engine image: engine, replica, and the command line used
// without a proxy.
package main

import (
	"os"

	"ankole.storage/dataplane/command"
)

func main() { os.Exit(command.Main(os.Args[1:])) }
