// Command bench measures the desktop.
package main

import (
	"context"
	"os"
)

func main() {
	ctx := context.Background()
	if len(os.Args) == 3 && os.Args[1] == "compare" {
		if err := compare(ctx, os.Args[2]); err != nil {
			fail(err)
		}
	}
}
