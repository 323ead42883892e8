// Command ankole is the user's command line.
package main

import (
	"os"

	"ankole.storage/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
