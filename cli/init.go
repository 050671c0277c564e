package cli

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/internal/safe"
	"github.com/spf13/cobra"
)

// The files of a new project. NAME stands for its name.
//
//go:embed starter
var starter embed.FS

// perdureModule is what a new project requires.
const perdureModule = "github.com/perdure/perdure"

// initCommand returns the command that begins a project.
func initCommand(a *app) *cobra.Command {
	var module string
	c := &cobra.Command{
		Use:   "init DIR",
		Short: "begin a project: an agent, a tool that needs approval, and a test",
		Long: `Writes a small project into a new or empty folder: an agent with a tool that needs
approval, a test, and a main function that makes it a server, a worker and every
command of this program. Its model is a script, so it runs as it is; main.go says
how to use a real one.`,
		Example: "  perdure init desk --module example.com/desk",
		Args:    arguments(1, 1),
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
				return exit.Usage(fmt.Errorf("%q is not a module name; give one such as example.com/desk", module))
			}
			return a.begin(dir, module)
		},
	}
	c.Flags().StringVar(&module, "module", "", "name of the Go module; by default that of the folder")
	return c
}

// modulePath matches accepted names of modules, a subset of what Go accepts.
var modulePath = regexp.MustCompile(`^[A-Za-z0-9_~][A-Za-z0-9_.~-]*(/[A-Za-z0-9_~][A-Za-z0-9_.~-]*)*$`)

// release matches published versions, not the state of somebody's folder.
var release = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[A-Za-z.]*\d{0,6})?$`)

// moduleName derives the name of a module from that of a folder.
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
		return &exit.Error{Code: exit.Conflict, Err: fmt.Errorf("%s is not empty: it contains %s; name a new folder", dir, there[0].Name())}
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
	mod, sum, source := goMod(module)
	if err := writeNew(filepath.Join(dir, "go.mod"), mod); err != nil {
		return err
	}
	tidy := "  go mod tidy\n"
	lost := !strings.Contains(mod, "\nrequire ")
	if lost {
		tidy = "  go mod edit -replace " + perdureModule + "=CLONE\n" + tidy
	}
	if sum != "" {
		if err := writeNew(filepath.Join(dir, "go.sum"), sum); err != nil {
			return err
		}
		tidy = "" // all requirements are known
	}
	if a.term.JSON {
		return a.term.PrintJSON(map[string]string{"folder": dir, "module": module, "source": source})
	}
	a.term.Printf("%s has an agent, one tool that needs approval, and a test.", dir)
	if source != "" {
		a.term.Printf("\nThis program was not built from a release, so go.mod replaces %s\nwith the source that it was built from, %s:\nremove that line when you want a release.", perdureModule, source)
	}
	if lost {
		a.term.Printf("\nThis program was not built from a release, and does not know where its source is:\nput the path of your clone of %s in place of CLONE.", perdureModule)
	}
	a.term.Printf(" Next:\n\n  cd %s\n%s  go test ./...\n  go run . dev\n\n", safe.Quote(dir), tidy)
	a.term.Printf("and in another terminal:\n\n  go run . run clerk \"Please refund order A-17\"\n")
	return nil
}

// writeNew writes a file that must not exist.
func writeNew(name, text string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// goMod returns the go.mod of a new project, and its go.sum if that is known. If
// this program was built from a release, the project requires that release. If
// not, it uses the source that the program was built from, or whose folder the program
// is in, which is returned too. If neither exists, go.mod requires nothing.
func goMod(module string) (mod, sum, source string) {
	mod = "module " + module + "\n\ngo 1.26.0\n"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return mod, "", ""
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == perdureModule && m.Replace == nil && release.MatchString(m.Version) {
			return mod + "\nrequire " + perdureModule + " " + m.Version + "\n", "", ""
		}
	}
	_, file, _, _ := runtime.Caller(0)
	exe, _ := os.Executable()
	source = cmp.Or(sourceAbove(file), sourceAbove(exe))
	own, err := os.ReadFile(filepath.Join(source, "go.mod"))
	sums, sumErr := os.ReadFile(filepath.Join(source, "go.sum"))
	if source == "" || err != nil || sumErr != nil {
		return mod, "", ""
	}
	mod += "\nrequire " + perdureModule + " v0.0.0\n\nreplace " + perdureModule + " => " + strconv.Quote(filepath.ToSlash(source)) + "\n\n// What that requires; go mod tidy removes what is not needed.\nrequire (\n"
	for _, m := range required.FindAllStringSubmatch(string(own), -1) {
		mod += "\t" + m[1] + " // indirect\n"
	}
	return mod + ")\n", string(sums), source
}

// sourceAbove returns the folder above a file that has the source of Perdure, "" if
// there is none.
func sourceAbove(file string) string {
	if !filepath.IsAbs(file) { // as a build with -trimpath has it
		return ""
	}
	for dir := filepath.Dir(file); ; dir = filepath.Dir(dir) {
		if own, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && strings.HasPrefix(string(own), "module "+perdureModule+"\n") {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

// required matches a line of a block of requirements.
var required = regexp.MustCompile(`(?m)^\t(\S+ v\S+)( // indirect)?$`)
