package terminal

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/perdure/perdure/internal/safe"
	"golang.org/x/term"
)

// keyboard reads a line only when one is wanted, so that an editor that is opened
// in between gets the rest of the input.
type keyboard struct {
	wanted chan struct{}
	lines  chan typed
	asked  bool // a line is wanted that has not come
}

type typed struct {
	line string
	err  error
}

// ReadLine reads a line that a person types, without its end. It returns io.EOF at
// the end of the input.
func (t *Terminal) ReadLine(ctx context.Context) (string, error) {
	if t.keys == nil {
		t.keys = &keyboard{wanted: make(chan struct{}, 1), lines: make(chan typed, 1)}
		go t.keys.read(t.In)
	}
	if !t.keys.asked {
		t.keys.wanted <- struct{}{}
		t.keys.asked = true
	}
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case got := <-t.keys.lines:
		t.keys.asked = false
		return got.line, got.err
	}
}

func (k *keyboard) read(in io.Reader) {
	r := bufio.NewReader(in)
	for range k.wanted {
		line, err := r.ReadString('\n')
		if line != "" && errors.Is(err, io.EOF) {
			err = nil
		}
		if err == nil {
			err = safe.CheckUTF8("what was typed", line)
		}
		k.lines <- typed{strings.TrimRight(line, "\r\n"), err}
	}
}

// Interactive reports whether a person is there to type.
func (t *Terminal) Interactive() bool {
	return t.Forced || !t.JSON && IsTerminal(t.In) && IsTerminal(t.Out)
}

// Ask prints a question and reads the answer.
func (t *Terminal) Ask(ctx context.Context, question string) (string, error) {
	t.Printf("%s", question)
	line, err := t.ReadLine(ctx)
	if err != nil && question != "" {
		t.Printf("\n")
	}
	return strings.TrimSpace(line), err
}

// ReadSecret reads a line without showing it.
func (t *Terminal) ReadSecret(ctx context.Context, question string) (string, error) {
	if t.Secret != nil {
		return t.Secret(ctx, question)
	}
	f, ok := t.In.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return t.ReadLine(ctx)
	}
	t.Printf("%s", question)
	defer t.Printf("\n")
	before, err := term.GetState(int(f.Fd()))
	if err != nil {
		return "", err
	}
	done := make(chan typed, 1)
	go func() {
		text, err := term.ReadPassword(int(f.Fd()))
		done <- typed{string(text), err}
	}()
	select {
	case <-ctx.Done():
		term.Restore(int(f.Fd()), before) // or the shell would not show what is typed
		return "", ctx.Err()
	case got := <-done:
		return got.line, cmp.Or(got.err, safe.CheckUTF8("the secret", got.line))
	}
}

// Edit lets a person change a text: in $VISUAL or $EDITOR, or on one line.
func (t *Terminal) Edit(ctx context.Context, text string) (string, error) {
	if t.Editor != nil {
		return t.Editor(ctx, text)
	}
	program := cmp.Or(t.Env("VISUAL"), t.Env("EDITOR"))
	if program == "" {
		return t.Ask(ctx, "new value, as JSON on one line: ")
	}
	f, err := os.CreateTemp("", "perdure-*.json")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	words := append(strings.Fields(program), f.Name())
	c := exec.CommandContext(ctx, words[0], words[1:]...)
	c.Stdin, c.Stdout, c.Stderr = t.In, t.Out, t.Err
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("the editor %s: %w", program, err)
	}
	changed, err := os.ReadFile(f.Name())
	if err == nil {
		err = safe.CheckUTF8("the edited text", string(changed))
	}
	return strings.TrimSpace(string(changed)), err
}
