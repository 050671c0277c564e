package agent

import (
	"context"

	"github.com/perdure/perdure/agent/files"
	"github.com/perdure/perdure/agent/internal/filetool"
)

// FileTools returns tools that work on files: ls, read_file, write_file,
// edit_file, delete_file, glob and grep. They are [Serial], so that each call of a
// message sees what the calls before it did. A change that is cut off by a crash is
// not made or reported twice, wherever the files are.
//
// Paths are normalised before anything looks at a call, so that an approval's
// predicate sees the path that is used, always from the root. A predicate of
// grep, glob or ls sees a folder; grep and glob also look into what is below it.
func FileTools(f files.FS) []Tool {
	t := filetool.New(f)
	var change []ToolOption
	if t.UsesVerbs() {
		change = []ToolOption{UsesVerbs()}
	}
	return []Tool{
		fileTool("ls", "Lists the files and folders that are directly in a folder.", t.List),
		fileTool("read_file", "Reads lines of a text file. Each line has its number and a tab before it, which are not part of the file.", t.Read),
		fileTool("write_file", "Writes a whole text file: makes it, with the folders it is in, or replaces what it was. To change a part of a file use edit_file.", t.Write),
		fileTool("edit_file", "Replaces a piece of a text file. The old text has to be exactly as it is in the file, with all spaces and line ends and without line numbers, and has to be there once, unless all is true.", t.Edit, change...),
		fileTool("delete_file", "Deletes a file.", t.Delete, change...),
		fileTool("glob", "Finds files by their paths. In the pattern * stands for any part of a name, ** for any number of folders, ? for one character, {a,b} for either.", t.Glob),
		fileTool("grep", "Finds lines in files by a regular expression (RE2) or a literal text, and shows each with its path and number.", t.Grep),
	}
}

func fileTool[A any, P interface {
	*A
	filetool.Args
}](name, description string, do func(ctx context.Context, args A) (filetool.Result, error), opts ...ToolOption) Tool {
	return NewTool(name, description, func(ctx context.Context, args A) (Output, error) {
		r, err := do(ctx, args)
		return Output{Text: r.Text, Error: r.Error}, err
	}, Serial(), Normalize(func(args A) (A, error) {
		P(&args).CleanPath()
		return args, nil
	})).With(opts...)
}
