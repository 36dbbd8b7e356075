// Command sessionapi is the program cubepod-sessionapi: the session API with
// its store and its runtime. It is configured by flags and the environment; see
// --help.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/term"
)

func main() {
	// The first signal ends the program properly, the second at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if len(os.Args) > 1 && os.Args[1] == "firewall" {
		switch err := firewall(ctx, os.Args[2:], os.Getenv, os.Stdout); {
		case err == nil, errors.Is(err, flag.ErrHelp):
		default:
			fmt.Fprintf(os.Stderr, "cubepod-sessionapi firewall: %v\n", err)
			os.Exit(1)
		}
		return
	}
	cfg, err := parseConfig(os.Args[1:], os.Getenv, os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "cubepod-sessionapi: %v\nSee cubepod-sessionapi --help.\n", err)
		os.Exit(2)
	}
	log := newLogger()
	redis.SetLogger(redisLog{log.Named("redis")})
	err = run(ctx, &cfg, log)
	_ = log.Sync() // standard error cannot always be synced
	if err != nil {
		fmt.Fprintf(os.Stderr, "cubepod-sessionapi: %v\n", err)
		os.Exit(1)
	}
}

// newLogger writes to standard error: for people on a terminal, JSON elsewhere.
func newLogger() *zap.Logger {
	cfg := zap.NewProductionEncoderConfig()
	cfg.EncodeTime = zapcore.ISO8601TimeEncoder
	cfg.EncodeDuration = zapcore.SecondsDurationEncoder
	enc := zapcore.NewJSONEncoder(cfg)
	if term.IsTerminal(int(os.Stderr.Fd())) {
		cfg.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		cfg.EncodeDuration = zapcore.StringDurationEncoder
		cfg.EncodeLevel = zapcore.CapitalColorLevelEncoder
		enc = zapcore.NewConsoleEncoder(cfg)
	}
	return zap.New(zapcore.NewCore(enc, zapcore.Lock(os.Stderr), zap.InfoLevel))
}

// redisLog takes what the Redis client says by itself. What matters of it comes
// as an error of some call too.
type redisLog struct{ log *zap.Logger }

// Printf implements the client's logger.
func (l redisLog) Printf(_ context.Context, format string, v ...any) {
	l.log.Debug(fmt.Sprintf(format, v...))
}
