package server

import (
	"context"
	"unicode/utf8"

	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/podd/command"
	"github.com/cubeplexai/cubepod/podd/text"
)

// excerpt is a piece of output and the command's status, whose cursor is the
// offset after the piece and which is truncated when bytes before it are gone.
type excerpt struct {
	bytes  []byte
	status poddapi.Status

	before                 []byte // the few bytes in front, when they matter
	tornBefore, tornBehind bool   // what was there is gone
}

// text gives the piece for JSON.
func (e excerpt) text() (s, b64 string) {
	return text.EncodePiece(e.bytes, e.before, e.tornBefore, e.tornBehind)
}

// excerptOf reads from cursor on, and waits for something to read until the
// command is finished or ctx ends. Unless raw, it ends with a whole character,
// if there will be one.
func excerptOf(ctx context.Context, c *command.Command, cursor int64, raw bool) (excerpt, error) {
	for {
		// The status first: a command that is finished has all its output.
		status := c.Status()
		p, from, err := c.Read(cursor, poddapi.MaxOutput)
		if err != nil {
			return excerpt{}, err
		}
		cursor = min(cursor, from) // it may have been past the end
		e := excerpt{bytes: p, status: status, tornBefore: from > cursor}
		full := int64(len(p)) == poddapi.MaxOutput
		e.tornBehind = !full && from+int64(len(p)) < status.Cursor
		if !raw && !e.tornBehind && (full || status.Running) {
			e.bytes = p[:text.Whole(p)]
		}
		if len(e.bytes) > 0 || !status.Running || ctx.Err() != nil {
			e.status.Cursor = from + int64(len(e.bytes))
			e.status.Truncated = e.status.Truncated || from > cursor
			if !raw {
				err = e.look(c, from)
			}
			return e, err
		}
		c.Wait(ctx, from+int64(len(p)))
	}
}

// look reads what is in front of a piece that begins inside a character.
func (e *excerpt) look(c *command.Command, from int64) error {
	if e.tornBefore || len(e.bytes) == 0 || utf8.RuneStart(e.bytes[0]) {
		return nil
	}
	at := max(0, from-utf8.UTFMax+1)
	p, got, err := c.Read(at, from-at)
	e.before = p
	e.tornBefore = got != at || got+int64(len(p)) != from
	return err
}
