package cli

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// programName is how this program is called.
func programName() string {
	info, ok := debug.ReadBuildInfo()
	exe, err := os.Executable()
	if err != nil || !ok {
		return "perdure"
	}
	if strings.Contains(exe, string(filepath.Separator)+"go-build") { // go run removes it afterwards
		if info.Path == info.Main.Path {
			return "go run ."
		}
		if rest, ok := strings.CutPrefix(info.Path, info.Main.Path+"/"); ok {
			if at, err := os.Stat(rest); err == nil && at.IsDir() {
				return "go run ./" + rest
			}
		}
		return "go run " + info.Path
	}
	name := filepath.Base(exe)
	if found, err := exec.LookPath(name); err == nil && found == exe {
		return name
	}
	return os.Args[0]
}

// program is how people call this program.
func (a *app) program() string { return cmp.Or(a.name, stockName) }

// stockName is the program that texts of commands name.
const stockName = "perdure"

// shellName is the program as a shell completes it.
func (a *app) shellName() string {
	name := strings.TrimSuffix(filepath.Base(a.program()), ".exe")
	if strings.ContainsAny(name, " ") || strings.Trim(name, ".") == "" { // go run
		return stockName
	}
	return name
}

// ours are the places where a text names a command of this program.
var ours = regexp.MustCompile(`\b` + stockName + ` (--help|[a-z][a-z-]*\b)`)

// named is a text of ours, with the name of this program in the commands that it
// names.
func (a *app) named(text string) string {
	if a.program() == stockName {
		return text
	}
	return ours.ReplaceAllStringFunc(text, func(found string) string {
		verb := strings.TrimPrefix(found, stockName+" ")
		for _, g := range groups {
			if verb == "--help" || strings.Contains(" "+g.commands+" ", " "+verb+" ") {
				return a.program() + " " + verb
			}
		}
		return found
	})
}

// rename puts the name of this program into the help of a command and of those
// below it.
func (a *app) rename(c *cobra.Command) {
	c.Short, c.Long, c.Example = a.named(c.Short), a.named(c.Long), a.named(c.Example)
	c.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = a.named(f.Usage) })
	for _, below := range c.Commands() {
		a.rename(below)
	}
}
