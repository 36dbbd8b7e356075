# make run     set up, build and start everything on this machine
# make test    install what the tests need and run them all
# make check   what a change must pass before review: format, vet, lint, test

GO ?= go
ARGS ?=
PKGS ?= ./...
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
VULNCHECK = golang.org/x/vuln/cmd/govulncheck@v1.9.0
XCADDY = github.com/caddyserver/xcaddy/cmd/xcaddy@v0.4.5

.PHONY: check build images test-images run test screenshots fmt vet lint xcaddy bench-api bench-desktop bench-edge bench-podd clean

check: fmt vet lint test

build:
	@deploy/build.sh

# Container images with Docker, cubepod/<name>:$(TAG), "dev" without a TAG.
images:
	@deploy/dev/packages.sh build
	@$(MAKE) --no-print-directory build
	@images/build.sh

# The images' own tests; installs what they need, and starts a Docker engine
# where there is none.
test-images:
	@deploy/dev/packages.sh test
	@deploy/dev/docker.sh
	@$(MAKE) --no-print-directory images
	@images/test.sh

# What the desktop image costs in time and memory, beside Chromium alone.
bench-desktop:
	CGO_ENABLED=0 $(GO) build -o bin/bench-desktop ./desktopctl/bench
	@bin/bench-desktop $(ARGS)

# The session API against its bounds, with a Docker engine and the images.
bench-api: build
	@$(GO) run ./sessionapi/bench $(ARGS)

run:
	@exec deploy/dev/run.sh $(ARGS)

test:
	@deploy/dev/packages.sh test
	@exec deploy/test.sh $(PKGS)

# The README's picture, taken on the way of the end-to-end test.
screenshots: build
	CUBEPOD_SCREENSHOTS=$(CURDIR)/deploy/screenshots $(GO) test -count=1 -run TestMainJob ./deploy/dev

fmt:
	@test -z "$$(gofmt -l . | tee /dev/stderr)"

vet:
	$(GO) vet ./...

lint:
	$(GO) run $(STATICCHECK) ./...
	$(GO) run $(VULNCHECK) ./...

# Panels against plain proxying: needs redis-server, nginx and wrk.
bench-edge:
	$(GO) run ./caddymodule/bench $(ARGS)

# The module in a Caddy that somebody else builds.
xcaddy:
	deploy/xcaddy.sh $(XCADDY)

# podd beside what it competes with, as a table.
bench-podd:
	$(GO) run ./podd/bench $(ARGS)

clean:
	rm -rf bin
