// Command cubepod-edge is Caddy with CubePod's panel module linked in.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/cubeplexai/cubepod/caddymodule"
)

func main() { caddycmd.Main() }
