package cli

import (
	"embed"
	"errors"
	"fmt"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// The files of a new project. NAME stands for its name.
//
//go:embed starter
var starter embed.FS

// perdureModule is what a new project requires.
const perdureModule = "github.com/perdure/perdure"

func init() { register(initCommand) }

// initCommand makes the command that begins a project.
func initCommand(a *app) *cobra.Command {
	var module string
	c := &cobra.Command{
		Use:   "init DIR",
		Short: "begin a project: an agent, a tool that needs approval, and a test",
		Long: `Writes a small project into a new or empty folder: an agent with one tool that
needs approval, its test, and a main function that makes it a server, a worker
and every command of this program. Its model is a script, so that it runs as it
is; main.go says how to use a real one.`,
		Example: "  perdure init desk --module example.com/desk",
		Args: func(_ *cobra.Command, given []string) error {
			if len(given) != 1 {
				return usage(errors.New("usage: perdure init DIR"))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, given []string) error {
			dir := given[0]
			if module == "" {
				full, err := filepath.Abs(dir)
				if err != nil {
					return err
				}
				module = moduleName(filepath.Base(full))
			}
			if !modulePath.MatchString(module) {
				return usage(fmt.Errorf("%q is no name for a module; give one such as example.com/desk", module))
			}
			return a.begin(dir, module)
		},
	}
	c.Flags().StringVar(&module, "module", "", "name of the Go module; that of the folder if not given")
	return c
}

// modulePath is what is taken as the name of a module: a part of what Go takes.
var modulePath = regexp.MustCompile(`^[A-Za-z0-9_~][A-Za-z0-9_.~-]*(/[A-Za-z0-9_~][A-Za-z0-9_.~-]*)*$`)

// release is a version that can be had: no state of somebody's folder.
var release = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[A-Za-z.]*\d{0,6})?$`)

// moduleName makes the name of a module of that of a folder.
func moduleName(folder string) string {
	name := strings.Trim(regexp.MustCompile(`[^a-z0-9_-]+`).ReplaceAllString(strings.ToLower(folder), "-"), "-")
	if name == "" || token.IsKeyword(name) {
		return "agent"
	}
	return name
}

// begin writes the project.
func (a *app) begin(dir, module string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(there) > 0 {
		return &exitError{code: exitConflict, err: fmt.Errorf("%s is not empty: it has %s; name a new folder", dir, there[0].Name())}
	}
	name := path.Base(module)
	files, err := fs.ReadDir(starter, "starter")
	if err != nil {
		return err
	}
	for _, f := range files {
		data, err := starter.ReadFile("starter/" + f.Name())
		if err != nil {
			return err
		}
		to := strings.TrimSuffix(f.Name(), ".txt")
		if to == "gitignore" {
			to = ".gitignore"
		}
		if err := writeNew(filepath.Join(dir, to), strings.ReplaceAll(string(data), "NAME", name)); err != nil {
			return err
		}
	}
	if err := writeNew(filepath.Join(dir, "go.mod"), goMod(module)); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(map[string]string{"folder": dir, "module": module})
	}
	a.printf("%s has an agent, one tool that needs approval, and a test. Next:\n\n", dir)
	a.printf("  cd %s\n  go mod tidy\n  go test ./...\n  go run . dev\n\n", quoted(dir))
	a.printf("and in another terminal:\n\n  go run . run clerk \"Please refund order A-17\"\n")
	return nil
}

// writeNew writes a file that must not be there.
func writeNew(name, text string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// goMod is the go.mod of a new project. A program that was not built from a
// release cannot say which version to require; go mod tidy finds the newest.
func goMod(module string) string {
	text := "module " + module + "\n\ngo 1.26.0\n"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return text
	}
	version := ""
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == perdureModule && m.Replace == nil && release.MatchString(m.Version) {
			version = m.Version
		}
	}
	if version != "" {
		text += "\nrequire " + perdureModule + " " + version + "\n"
	}
	return text
}
