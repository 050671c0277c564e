//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompletionOffersPlainWords presses TAB in the real shells, where others have
// chosen the ids of threads: nothing of them is executed or typed, and a plain one
// is completed.
func TestCompletionOffersPlainWords(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	made := t.TempDir() // each shell gets a copy
	for _, id := range []string{"$(touch PWNED)1", "$(touch PWNED)2", "`touch PWNED`", "a;touch PWNED;", "(touch PWNED)", "{touch,PWNED}"} {
		launch(t, made, []string{beHostile + "=1"}, "run", "pay", "lines", "--thread", id, "--store", "sqlite:"+filepath.Join(made, "x.db")).ends(4)
	}
	for shell, start := range map[string]string{
		// What completion needs of the package bash-completion.
		"bash": `bash --norc --noprofile -c 'printf %s "_get_comp_words_by_ref() { cur=\${COMP_WORDS[COMP_CWORD]} prev= words=(\"\${COMP_WORDS[@]}\") cword=\$COMP_CWORD; }; source <(perdure completion bash)" > rc; exec bash --rcfile rc -i'`,
		"zsh":  `zsh -f -c 'printf %s "autoload -U compinit; compinit -u -D; source <(perdure completion zsh)" > .zshrc; ZDOTDIR=$PWD exec zsh -i'`,
		"fish": `fish --no-config -C 'perdure completion fish | source'`,
	} {
		t.Run(shell, func(t *testing.T) {
			needs(t, shell)
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(made)); err != nil {
				t.Fatal(err)
			}
			tmux := terminals(t, dir)
			store := "sqlite:" + filepath.Join(dir, "x.db")
			named := filepath.Join(t.TempDir(), "perdure") // completion is for the name of the program
			if err := os.Symlink(exe, named); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "perdure"), fmt.Appendf(nil, "#!/bin/sh\necho \"$@\" >> %s/calls\nPERDURE_STORE=%s exec %s \"$@\"\n", dir, store, named), 0o700); err != nil {
				t.Fatal(err)
			}
			tmux.do("new-session", "-d", "-s", shell, "-x", "120", "-y", "24", "-c", dir, "env PATH="+dir+":$PATH HOME="+dir+" "+start)
			tmux.shows(shell, "\nready", "C-u", "echo read''y", "Enter")
			tmux.do("send-keys", "-t", shell, "perdure show ", "Tab", "Tab", "Tab")
			if screen := tmux.shows(shell, "\ndone", "C-u", "echo don''e", "Enter"); strings.Contains(screen, "touch") {
				t.Errorf("it shows:\n%s", screen)
			}
			if calls, _ := os.ReadFile(filepath.Join(dir, "calls")); !strings.Contains(string(calls), "__complete show") {
				t.Fatalf("it has not asked for the threads: %s", calls)
			}
			launch(t, dir, []string{beHostile + "=1"}, "run", "pay", "lines", "--thread", "good-1", "--store", store).ends(4)
			tmux.shows(shell, "perdure show good-1", "C-u", "perdure show g", "Tab")
			if _, err := os.Stat(filepath.Join(dir, "PWNED")); err == nil {
				t.Error("an id was executed")
			}
		})
	}
}
