package cli

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

	"golang.org/x/term"
)

// keyboard reads lines one by one, as they are wanted: what is not yet asked for
// is left to an editor that is opened meanwhile.
type keyboard struct {
	wanted chan struct{}
	lines  chan typed
	asked  bool // a line is wanted that has not come
}

type typed struct {
	line string
	err  error
}

// readLine reads a line that a person types, without its end. It is io.EOF when
// nothing more will come.
func (a *app) readLine(ctx context.Context) (string, error) {
	if a.keys == nil {
		a.keys = &keyboard{wanted: make(chan struct{}, 1), lines: make(chan typed, 1)}
		go a.keys.read(a.in)
	}
	if !a.keys.asked {
		a.keys.wanted <- struct{}{}
		a.keys.asked = true
	}
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case t := <-a.keys.lines:
		a.keys.asked = false
		return t.line, t.err
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
			err = checkText("what was typed", line)
		}
		k.lines <- typed{strings.TrimRight(line, "\r\n"), err}
	}
}

// interactive reports whether a person is there to type.
func (a *app) interactive() bool {
	return a.forced || !a.json && isTerminal(a.in) && isTerminal(a.out)
}

// ask prints a question and reads what is typed.
func (a *app) ask(ctx context.Context, question string) (string, error) {
	a.printf("%s", question)
	line, err := a.readLine(ctx)
	if err != nil && question != "" {
		a.printf("\n")
	}
	return strings.TrimSpace(line), err
}

// sure asks whether to do something that cannot be undone.
func (a *app) sure(ctx context.Context, yes bool, what string) error {
	if yes {
		return nil
	}
	if !a.interactive() {
		return usage(fmt.Errorf("%s: say that you are sure with --yes", what))
	}
	line, err := a.ask(ctx, what+"? [y/N] ")
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if line != "y" && line != "yes" {
		return &exitError{code: exitFailed, err: errors.New("nothing was done")}
	}
	return nil
}

// readSecret reads what is not to be seen.
func (a *app) readSecret(ctx context.Context, question string) (string, error) {
	if a.secret != nil {
		return a.secret(ctx, question)
	}
	f, ok := a.in.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return a.readLine(ctx)
	}
	a.printf("%s", question)
	defer a.printf("\n")
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
		term.Restore(int(f.Fd()), before) // the shell shows again what is typed
		return "", ctx.Err()
	case t := <-done:
		return t.line, cmp.Or(t.err, checkText("the secret", t.line))
	}
}

// edit lets a person change a text: in $EDITOR, or on one line.
func (a *app) edit(ctx context.Context, text string) (string, error) {
	if a.editor != nil {
		return a.editor(ctx, text)
	}
	program := a.env("VISUAL")
	if program == "" {
		program = a.env("EDITOR")
	}
	if program == "" {
		return a.ask(ctx, "new value, as JSON on one line: ")
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
	c.Stdin, c.Stdout, c.Stderr = a.in, a.out, a.err
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("the editor %s: %w", program, err)
	}
	changed, err := os.ReadFile(f.Name())
	if err == nil {
		err = checkText("the edited text", string(changed))
	}
	return strings.TrimSpace(string(changed)), err
}
