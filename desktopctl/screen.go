package main

import (
	"context"
	"errors"
	"flag"
	"image/png"
	"io"
	"os"
	"path/filepath"

	"github.com/cubeplexai/cubepod/desktopctl/chrome"
	"github.com/cubeplexai/cubepod/desktopctl/x11"
	"github.com/cubeplexai/cubepod/internal/apierror"
)

// screenshotReport is what screenshot prints, unless the picture went there.
type screenshotReport struct {
	Status string `json:"status"`
	Path   string `json:"path"`
	Width  int    `json:"width"`
	Height int    `json:"height"`
}

// screenshotCommand writes the whole screen, as a person sees it.
func screenshotCommand(ctx context.Context, _ Config, args []string) (any, error) {
	fs := flag.NewFlagSet("screenshot", flag.ContinueOnError)
	if err := parseFlags(fs, args, 1); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := x11.Dial(ctx, display)
	if err != nil {
		return nil, apierror.Wrap(err, apierror.Conflict, "not_running", "the desktop is not running")
	}
	defer conn.Close()
	img, err := conn.Image()
	if err != nil {
		return nil, err
	}
	encode := func(w io.Writer) error {
		enc := png.Encoder{CompressionLevel: png.BestSpeed}
		return enc.Encode(w, img)
	}
	path := fs.Arg(0)
	if path == "-" {
		return nil, encode(os.Stdout)
	}
	if err := writeWhole(path, encode); err != nil {
		return nil, apierror.New(apierror.Invalid, "not_written", "%v", err)
	}
	size := img.Bounds().Size()
	return screenshotReport{"ok", path, size.X, size.Y}, nil
}

// writeWhole makes or replaces a file by what write gives, or leaves it alone.
func writeWhole(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".screenshot-*")
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// focusReport is what focus prints.
type focusReport struct {
	Status string `json:"status"`
	Target string `json:"target"`
}

// focusCommand brings a tab to the front. Tabs are named by their DevTools id:
// an address may be shown by several.
func focusCommand(ctx context.Context, cfg Config, args []string) (any, error) {
	fs := flag.NewFlagSet("focus", flag.ContinueOnError)
	if err := parseFlags(fs, args, 1); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	id := fs.Arg(0)
	err := NewStack(cfg).devtools.Activate(ctx, id)
	switch {
	case errors.Is(err, chrome.ErrNoTarget):
		return nil, apierror.Wrap(err, apierror.NotFound, "target_not_found", "no tab has the id %q", id)
	case err != nil:
		return nil, apierror.Wrap(err, apierror.Conflict, "not_running", "the browser does not answer")
	}
	return focusReport{"ok", id}, nil
}
