package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/server"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Main runs the command line of a program with flows, and exits. The first interrupt
// stops a command gracefully, the second one immediately. A program that needs options
// calls [Run].
func Main(flows ...perdure.Flow) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(Run(ctx, Options{}, flows...))
}

// Options configures a command line. [Main] uses the zero value.
type Options struct {
	// Args holds the arguments without the program's name. Nil means os.Args.
	Args []string
	// Stdout and Stderr are where commands write. Nil means those of the process.
	Stdout, Stderr io.Writer
	// Runtime configures every runtime that a command opens. Its Logger receives
	// what dev, serve and worker log, which otherwise goes to Stderr, and its
	// Observer sees their steps. Flags take precedence.
	Runtime perdure.Options
	// Server configures the API of dev and serve, such as the largest body. Flags
	// take precedence. If Auth is set, serve also accepts tokens of --tokens, but
	// tokens of the store only with --auth store; dev also lets in the user who
	// started it. Faces are added to those of packages adk, agentkit and mcpface,
	// which dev and serve always have.
	Server server.Options
	// Example is an input of the first flow, which dev suggests. Empty means Hello.
	Example string
	// Commands holds the program's own commands. They also get the flags that all
	// commands have, such as --plain.
	Commands []*cobra.Command
	// Engine adds flags to serve with which this process also runs a server for its
	// store. The function that it returns is called once the flags are set. If they
	// ask for a server, it starts one and returns the URL of the store; otherwise it
	// returns "". Stop is called after the store is closed.
	Engine func(flags *pflag.FlagSet) func(ctx context.Context, log *slog.Logger) (store string, stop func(), err error)
	// Routes adds the program's own routes to those of dev and serve. They take
	// precedence over the API and the console, except a route for everything, such
	// as "/" or "GET /", which gets only what neither of these serves. They are called
	// without checking tokens, hosts or origins, and without limits.
	Routes func(mux *http.ServeMux, rt *perdure.Runtime)
}

// Run runs one command of a program with flows until it is done or the context
// ends, and returns the exit code. It leaves signals to the caller: with a context
// from [signal.NotifyContext], as [Main] has it, serve and worker hand over their
// runs when the process is told to end; without one, SIGTERM kills it.
func Run(ctx context.Context, o Options, flows ...perdure.Flow) int {
	t := &terminal.Terminal{In: os.Stdin, Out: cmp.Or[io.Writer](o.Stdout, os.Stdout), Err: cmp.Or[io.Writer](o.Stderr, os.Stderr), Env: os.Getenv}
	args := o.Args
	if args == nil {
		args = os.Args[1:]
	}
	return newApp(t, o, programName(), flows).run(ctx, args)
}

func newApp(t *terminal.Terminal, o Options, name string, flows []perdure.Flow) *app {
	a := &app{flows: flows, term: t, name: name, opts: o}
	a.conn = &link.Connector{Program: a.program(), Flows: flows, Runtime: o.Runtime, Term: t, Hint: a.hint}
	return a
}

// app is one invocation of the program.
type app struct {
	flows []perdure.Flow
	opts  Options
	name  string // how people call the program; "" means perdure
	term  *terminal.Terminal

	conn *link.Connector
}

// flowNames returns the names of the program's flows.
func (a *app) flowNames() (names []string) {
	for _, f := range a.flows {
		names = append(names, f.Name())
	}
	return names
}

// run runs a command and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.term.In)
	root.SetOut(a.term.Out)
	root.SetErr(a.term.Err)
	var err error
	for _, arg := range args {
		err = cmp.Or(err, safe.CheckUTF8("an argument", arg))
	}
	if err == nil {
		err = cmp.Or(root.ExecuteContext(ctx), a.term.Broken())
	}
	if err != nil && !errors.Is(err, exit.ErrQuiet) {
		fmt.Fprintf(a.term.Err, "%s: %s\n", a.shellName(), a.message(err))
	}
	return exit.Code(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           a.shellName(),
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: a.program()},
		Short:         "a durable runtime for AI agents",
		Long:          rootHelp,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(c *cobra.Command, given []string) error {
			if len(given) > 0 {
				return exit.Usage(fmt.Errorf("there is no command %s%s; perdure --help lists them", given[0], didYouMean(c, given[0])))
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
		PersistentPreRun: func(c *cobra.Command, _ []string) {
			a.conn.Verb = c.Name()
			a.choose(c)
		},
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.conn.Server, "server", a.term.Env("PERDURE_SERVER"), "address of a server, such as http://127.0.0.1:7373 ($PERDURE_SERVER)")
	flags.StringVar(&a.conn.Store, "store", a.term.Env("PERDURE_STORE"), "URL of a store to work on without a server, such as sqlite:perdure.db ($PERDURE_STORE)")
	flags.StringVar(&a.conn.Archive, "archive", a.term.Env("PERDURE_ARCHIVE"), "URL of the archive of a store, such as file:DIR ($PERDURE_ARCHIVE)")
	flags.StringVar(&a.conn.Token, "token", "", "token for the server ($PERDURE_TOKEN)")
	flags.StringVar(&a.conn.By, "by", "", "who you are, where no token says so")
	flags.Lookup("store").DefValue = link.WithoutPassword(a.conn.Store) // help prints it
	flags.BoolVar(&a.conn.Trust, "trust", false, "use the store in ./.perdure even if you did not create it here")
	flags.BoolVar(&a.conn.Shared, "shared-folder", false, "allow a new store in a folder that every user of this machine can write to")
	flags.BoolVar(&a.term.JSON, "json", false, "print JSON")
	flags.BoolVar(&a.term.Plain, "plain", false, "no colours and no live progress (as with $NO_COLOR, or in a pipe)")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if bad, ok := errors.AsType[*strconv.NumError](err); ok { // say it without the name of a function
			err = errors.New(strings.Replace(err.Error(), bad.Error(), "it has to be a whole number that is not too large", 1))
		}
		return exit.Usage(fmt.Errorf("%w; see %s --help", err, c.CommandPath()))
	})
	for _, add := range commands {
		root.AddCommand(add(a))
	}
	root.AddCommand(a.opts.Commands...)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(a.helpCommand(root))
	arrange(root)
	a.rename(root)
	a.complete(root)
	return root
}

// commands creates the commands.
var commands = []func(*app) *cobra.Command{
	initCommand, devCommand, runCommand, chatCommand,
	threadsCommand, showCommand, postMortemCommand, eventsCommand, stateCommand, diffCommand,
	controlCommand("pause", "  perdure pause trip-7\n  perdure pause trip-7 --reason \"wait for the audit\"", api.RunsPause),
	controlCommand("cancel", "  perdure cancel trip-7\n  perdure cancel trip-7 RUN --reason \"not needed\"", api.RunsCancel),
	controlCommand("retry", "  perdure retry trip-7", api.RunsRetry),
	resumeCommand, signalCommand, forkCommand, rewindCommand,
	bulkCommand, schedulesCommand, seenCommand, asksCommand, answerCommand, rulesCommand,
	memoryCommand, uploadCommand, bundleCommand, exportCommand, importCommand, verifyCommand, archiveCommand, unarchiveCommand, archivedCommand, eraseCommand, receiptCommand,
	serveCommand, mcpCommand, workerCommand, workersCommand, flowsCommand, usageCommand, tokenCommand, doctorCommand, benchCommand, backupCommand, restoreCommand, keysCommand, retentionCommand, migrateCommand,
	docsCommand, completionCommand, versionCommand, exitCodesCommand,
}

// choose lets a flag that names a server or a store override the environment.
func (a *app) choose(c *cobra.Command) {
	server, store := c.Flags().Changed("server"), c.Flags().Changed("store")
	if server && !store {
		a.conn.Store = ""
	}
	if store && !server {
		a.conn.Server = ""
	}
}
