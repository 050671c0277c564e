package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/safe"
	"github.com/spf13/cobra"
)

// operation makes an operation of the API a command. Use is the command's name
// followed by its arguments in capitals: fields of the operation's input, optional
// ones in brackets. All other fields are flags. Show prints the result for people;
// with --json it is printed as it is.
func operation[In, Out any](a *app, use, example string, op api.Op[In, Out], show func(*app, *Out) error) *cobra.Command {
	return operate(a, use, example, op, func(_ context.Context, _ *link.Link, out *Out) error {
		switch {
		case a.term.JSON && op.Out == nil:
			return a.term.PrintJSON(struct{}{})
		case a.term.JSON:
			return a.term.PrintJSON(out)
		}
		return show(a, out)
	})
}

// wrapped breaks the lines of a text as those of written help are.
func wrapped(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, safe.Wrap(line, 85)...)
	}
	return strings.Join(lines, "\n")
}

// operate is like operation, for a command that does something with the result
// besides printing it.
func operate[In, Out any](a *app, use, example string, op api.Op[In, Out], do func(context.Context, *link.Link, *Out) error) *cobra.Command {
	words := strings.Fields(use)
	var args []argument
	for _, word := range words[1:] {
		name := strings.Trim(word, "[].")
		i := slices.IndexFunc(op.Fields(), func(f api.Field) bool { return strings.EqualFold(flagName(f), name) })
		if i < 0 {
			panic(fmt.Sprintf("cli: operation %s has no field for %s", op.Name, word))
		}
		args = append(args, argument{op.Fields()[i], strings.HasPrefix(word, "[")})
	}
	c := &cobra.Command{Use: use, Short: op.Title, Long: strings.TrimSpace(capital(op.Title) + ".\n\n" + wrapped(op.Doc)), Example: example}
	values := map[string]*texts{}
	for _, f := range op.Fields() {
		name := flagName(f)
		if name == "ticket" || slices.ContainsFunc(args, func(x argument) bool { return x.Name == f.Name }) {
			continue
		}
		values[name] = &texts{kind: kindOf(f)}
		flag := c.Flags().VarPF(values[name], name, "", f.Tag.Get("jsonschema"))
		if f.Type.Kind() == reflect.Bool {
			flag.NoOptDefVal = "true"
		}
	}
	least := 0
	for _, x := range args {
		if !x.optional {
			least++
		}
	}
	c.Args = arguments(least, len(args))
	c.RunE = func(c *cobra.Command, words []string) error {
		in := reflect.New(op.In).Elem()
		for i, text := range words {
			if args[i].Type == reflect.TypeFor[json.RawMessage]() {
				data, err := a.value(text)
				if err != nil {
					return err
				}
				text = string(data)
			}
			if err := setField(args[i].Field, in, []string{text}); err != nil {
				return exit.Usage(fmt.Errorf("%s: %w", strings.Trim(strings.Fields(c.Use)[i+1], "[]"), err))
			}
		}
		for _, f := range op.Fields() {
			name := flagName(f)
			given := values[name]
			if given == nil || !c.Flags().Changed(name) {
				left := !slices.ContainsFunc(args[:len(words)], func(x argument) bool { return x.Name == f.Name })
				if f.Where == api.InPath && f.Key == "run" && left { // an empty id is not a run
					in.FieldByIndex(f.Index).SetString(api.Newest)
				}
				continue
			}
			if err := setField(f, in, given.all); err != nil {
				return exit.Usage(fmt.Errorf("--%s: %w", name, err))
			}
			if f.Where == api.InHeader && f.Type.Kind() == reflect.String && in.FieldByIndex(f.Index).String() == "" {
				return exit.Usage(fmt.Errorf("--%s is empty; give a text, or leave it out", name))
			}
		}
		return a.linked(c.Context(), func(ctx context.Context, l *link.Link) error {
			out, err := client.Do(ctx, l.Client, op, in.Interface().(In))
			if err != nil {
				return err
			}
			return do(ctx, l, out)
		})
	}
	return c
}

// hinted shows a text for an operation without a result.
func hinted(text string) func(*app, *api.None) error {
	return func(a *app, _ *api.None) error {
		a.hint("%s", text)
		return nil
	}
}

// argument is a field given by its position.
type argument struct {
	api.Field
	optional bool
}

// texts is a flag that may be repeated if its field allows that.
type texts struct {
	kind string
	all  []string
}

// String returns the default: none.
func (t *texts) String() string { return "" }

func (t *texts) Set(s string) error {
	t.all = append(t.all, s)
	return nil
}

// Type returns what help calls the values.
func (t *texts) Type() string { return t.kind }

// kindOf returns what help calls the values of a field.
func kindOf(f api.Field) string {
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[json.RawMessage]():
		return "JSON"
	case reflect.TypeFor[time.Time]():
		return "time"
	}
	kinds := map[reflect.Kind]string{reflect.Map: "NAME=VALUE", reflect.Bool: "bool", reflect.String: "string", reflect.Slice: "string"}
	return cmp.Or(kinds[t.Kind()], "uint")
}

// flagName returns the flag of a field.
func flagName(f api.Field) string {
	switch f.Key {
	case "Idempotency-Key":
		return "key"
	case "place...":
		return "place"
	}
	return strings.ToLower(strings.ReplaceAll(f.Key, "_", "-"))
}

// setField sets a field from the command line: from JSON if the field accepts any,
// and from NAME=VALUE if it is a map. A list is given with commas, or by repeating
// the flag.
func setField(f api.Field, in reflect.Value, texts []string) error {
	v := in.FieldByIndex(f.Index)
	switch {
	case v.Type() == reflect.TypeFor[json.RawMessage]():
		v.SetBytes(anyJSON(texts[0]))
	case f.Key == "place..." || f.Key == "ns":
		place, err := segments(texts[0])
		if err != nil {
			return err
		}
		v.Set(reflect.ValueOf(place))
	case v.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for _, text := range texts {
			name, value, ok := strings.Cut(text, "=")
			if !ok {
				return fmt.Errorf("%q is not NAME=VALUE", text)
			}
			item := reflect.New(v.Type().Elem()).Elem()
			switch {
			case item.Type() == reflect.TypeFor[json.RawMessage]():
				item.SetBytes(anyJSON(value))
			case item.Kind() == reflect.String:
				item.SetString(value)
			default:
				if err := json.Unmarshal([]byte(value), item.Addr().Interface()); err != nil {
					return fmt.Errorf("%q: %w", text, err)
				}
			}
			if v.MapIndex(reflect.ValueOf(name)).IsValid() {
				return fmt.Errorf("%q is there twice", name)
			}
			v.SetMapIndex(reflect.ValueOf(name), item)
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.String:
		for _, text := range strings.Split(strings.Join(texts, ","), ",") {
			item := reflect.New(v.Type().Elem()).Elem()
			item.SetString(strings.TrimSpace(text))
			v.Set(reflect.Append(v, item))
		}
	case v.Type() == reflect.TypeFor[time.Time]():
		at, err := parseTime(texts[0], time.Now())
		v.Set(reflect.ValueOf(at))
		return err
	default:
		return f.Set(in, texts)
	}
	return nil
}

// parseTime returns a time that is given as such, as a day, which begins at midnight
// here, or as an age.
func parseTime(text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil && !at.IsZero() {
		return at, nil
	}
	if day, err := time.ParseInLocation(time.DateOnly, text, time.Local); err == nil && !day.IsZero() {
		return day, nil
	}
	if age, err := api.ParseAge(text); err == nil {
		return now.Add(-age), nil
	}
	return time.Time{}, fmt.Errorf("%q is not a time such as 2006-01-02T15:04:05Z, a day such as 2006-01-02, or an age such as 7d", text)
}

// anyJSON returns a value given as JSON, or as any other text.
func anyJSON(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	data, _ := json.Marshal(text)
	return data
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// arguments checks how many arguments there are.
func arguments(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, given []string) error {
		if len(given) < least || most >= 0 && len(given) > most {
			return exit.Usage(fmt.Errorf("usage: %s", strings.TrimSuffix(c.UseLine(), " [flags]")))
		}
		return nil
	}
}

// linked connects to a server or a store and calls a function with it.
func (a *app) linked(ctx context.Context, do func(context.Context, *link.Link) error) error {
	l, err := a.conn.Connect(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	return do(ctx, l)
}

// group puts commands below another one, which does nothing by itself.
func group(c *cobra.Command, below ...*cobra.Command) *cobra.Command {
	c.AddCommand(below...)
	c.Args = func(c *cobra.Command, given []string) error {
		if len(given) == 0 {
			return nil
		}
		return exit.Usage(fmt.Errorf("there is no %s %s; see %s --help", c.CommandPath(), given[0], c.CommandPath()))
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	return c
}

// value returns an argument that is JSON or a text; - reads it from the standard
// input.
func (a *app) value(text string) (json.RawMessage, error) {
	if text == "-" {
		data, err := io.ReadAll(a.term.In)
		if err != nil {
			return nil, err
		}
		text = strings.TrimSuffix(string(data), "\n")
	}
	if err := safe.CheckUTF8("the standard input", text); err != nil {
		return nil, err
	}
	value := anyJSON(text)
	if begin := strings.TrimSpace(text); value[0] == '"' && (strings.HasPrefix(begin, "{") || strings.HasPrefix(begin, "[")) {
		a.hint("this is not valid JSON, so it is used as a text: %s", safe.Cut(safe.Line(text), safe.LabelCells))
	}
	return value, nil
}
