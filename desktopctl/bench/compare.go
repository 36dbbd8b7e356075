package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Pages to measure on. The first turns another colour with every key, the
// second is never at rest.
const (
	keysPage   = `data:text/html,<title>keys</title><body style="margin:0;background:%23000" onkeydown="document.body.style.background=(n=!n)?'%23fff':'%23000'"><script>n=false</script>`
	scrollPage = `data:text/html,<title>scroll</title><body><script>for(let i=0;i<400;i++)document.write('<p style="font:20px sans-serif;background:hsl('+i*7+',60%25,80%25)">'+i+' The quick brown fox jumps over the lazy dog and back again, twice a day.');let y=0;(function f(){scrollTo(0,y=(y+7)%258000);requestAnimationFrame(f)})()</script>`
	stillPage  = "data:text/html,<title>still</title><h1>still</h1>"
)

// compare measures the VNC server that runs in this guest, and prints a line
// for each figure.
func compare(ctx context.Context, socket string) error {
	began := time.Now()
	c, err := dialRFB(ctx, socket)
	if err != nil {
		return err
	}
	c.request(true)
	first, err := c.next(ctx, 5*time.Second)
	if err != nil {
		return err
	}
	fmt.Printf("connect to first picture      %s\n", ms(first.Sub(began)))
	c.Close()

	for _, m := range []struct {
		what string
		run  func(context.Context, *rfb) error
	}{
		{keysPage, latency}, {scrollPage, frames}, {stillPage, idle}, {stillPage, clipboard},
	} {
		if err := show(ctx, m.what); err != nil {
			return err
		}
		if c, err = dialRFB(ctx, socket); err != nil {
			return err
		}
		c.request(true)
		c.settle(ctx)
		err := m.run(ctx, c)
		c.Close()
		if err != nil {
			return err
		}
	}
	if err := show(ctx, stillPage); err != nil {
		return err
	}
	pause(ctx, 3*time.Second)
	load := measureCPU(func() { pause(ctx, 10*time.Second) })
	fmt.Printf("CPU at rest, nobody watches   %s\n", load)
	return nil
}

func latency(ctx context.Context, c *rfb) error {
	c.click() // the page gets the keyboard
	var took []time.Duration
	for range 25 {
		pause(ctx, 400*time.Millisecond) // servers fall asleep
		c.drain()
		began := time.Now()
		c.key(true, 'a')
		at, err := c.next(ctx, 3*time.Second)
		if err != nil {
			return fmt.Errorf("latency: %w", err)
		}
		c.key(false, 'a')
		took = append(took, at.Sub(began))
	}
	slices.Sort(took)
	fmt.Printf("key press to changed picture  median %s, 95 %% %s\n", ms(took[len(took)/2]), ms(took[len(took)*95/100]))
	return nil
}

// frames counts screens by their pixels: some servers send a picture in pieces.
func frames(ctx context.Context, c *rfb) error {
	const span = 6 * time.Second
	pixels, bytes := c.pixels.Load(), c.r.n.Load()
	load := measureCPU(func() { pause(ctx, span) })
	screens := float64(c.pixels.Load()-pixels) / float64(int(c.width)*int(c.height))
	fmt.Printf("screens a second, scrolling   %.1f, %.1f MB/s\n", screens/span.Seconds(), float64(c.r.n.Load()-bytes)/span.Seconds()/1e6)
	fmt.Printf("CPU, scrolling                %s\n", load)
	return nil
}

func idle(ctx context.Context, _ *rfb) error {
	pause(ctx, 3*time.Second)
	load := measureCPU(func() { pause(ctx, 10*time.Second) })
	fmt.Printf("CPU at rest, one watches      %s\n", load)
	return nil
}

func clipboard(ctx context.Context, c *rfb) error {
	const text = "é 汉字 😀"
	c.copy(text)
	pause(ctx, 500*time.Millisecond)
	limit, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	out, err := exec.CommandContext(limit, "xclip", "-selection", "clipboard", "-o").Output()
	fmt.Printf("clipboard to the sandbox      %q (%v)\n", out, err)

	for len(c.cut) > 0 {
		<-c.cut
	}
	cmd := exec.CommandContext(ctx, "xclip", "-selection", "clipboard", "-i")
	cmd.Stdin = strings.NewReader(text + " back")
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return err
	}
	select {
	case got := <-c.cut:
		fmt.Printf("clipboard from the sandbox    %q after %s\n", got, ms(time.Since(began)))
	case <-time.After(20 * time.Second):
		fmt.Printf("clipboard from the sandbox    nothing\n")
	}
	return nil
}

// show opens a page in the guest's browser in front of all.
func show(ctx context.Context, page string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://127.0.0.1:9223/json/new?"+strings.ReplaceAll(url.QueryEscape(page), "+", "%20"), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	pause(ctx, 1500*time.Millisecond)
	return nil
}

// next waits for an update.
func (c *rfb) next(ctx context.Context, limit time.Duration) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case at := <-c.updates:
		return at, nil
	case err := <-c.ended:
		c.ended <- err
		return time.Time{}, err
	case <-ctx.Done():
		return time.Time{}, fmt.Errorf("no update: %w", ctx.Err())
	}
}

// settle waits until nothing has changed for a while.
func (c *rfb) settle(ctx context.Context) {
	for range 20 {
		if _, err := c.next(ctx, 500*time.Millisecond); err != nil {
			return
		}
	}
}

func (c *rfb) drain() {
	for len(c.updates) > 0 {
		<-c.updates
	}
}

func pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }
