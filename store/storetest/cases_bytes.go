package storetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/perdure/perdure/store"
)

// oddBytes are values that formats tend to change.
func oddBytes() [][]byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	random := make([]byte, 4096)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	odd := [][]byte{nil, {}, {0}, {0, 0}, {'\n'}, {'\r', '\n'}, []byte("trailing\x00"), []byte("trailing\n"), {0xff}, {0xc3, 0x28}, []byte("\xed\xa0\x80"), all, random}
	for _, text := range []string{`{"a":1}`, ` {"a" : 1}`, "{\"a\":1}\n", `{"a":9007199254740993,"a":1e400}`, `"<>&\u2028"`, "\"\u2028\"", `null`, `"`, `{`, "\ufeff{}", `'; DROP TABLE entries; --`} {
		odd = append(odd, []byte(text))
	}
	return odd
}

var byteCases = []testCase{
	{"bytes/entries", `An entry comes back byte for byte, whatever it holds: the hash chain and the encryption above depend on it.`,
		func(k *kit) {
			s := k.open()
			odd := oddBytes()
			for i, data := range odd {
				if err := sure(func() error { _, err := s.Append(k.ctx, "j", uint64(i), data); return err }); err != nil {
					k.Fatalf("Append of %.40q: %v", data, err)
				}
			}
			if err := sure(func() error { _, err := s.Append(k.ctx, "batch", 0, odd...); return err }); err != nil {
				k.Fatalf("Append of %d odd entries: %v", len(odd), err)
			}
			for _, journal := range []string{"j", "batch"} {
				got := k.read(s, journal)
				if len(got) != len(odd) {
					k.Fatalf("%d entries came back, want %d", len(got), len(odd))
				}
				for i, data := range odd {
					if got[i] != string(data) {
						k.Errorf("entry %.60q came back as %.60q", data, got[i])
					}
				}
			}
		}},

	{"bytes/cells", `A cell's value comes back byte for byte, and an empty one is still a cell.`,
		func(k *kit) {
			s := k.open()
			odd := oddBytes()
			for i, value := range odd {
				if err := sure(func() error { _, err := s.Put(k.ctx, fmt.Sprintf("c%02d", i), value, ""); return err }); err != nil {
					k.Fatalf("Put of %.40q: %v", value, err)
				}
			}
			i := 0
			for cell, err := range s.List(k.ctx, "c", "") {
				if err != nil {
					k.Fatal(err)
				}
				if i < len(odd) && !bytes.Equal(cell.Value, odd[i]) {
					k.Errorf("value %.60q came back from List as %.60q", odd[i], cell.Value)
				}
				i++
			}
			if i != len(odd) {
				k.Errorf("List yields %d of %d cells", i, len(odd))
			}
			for i, value := range odd {
				if got := k.value(s, fmt.Sprintf("c%02d", i)); got != string(value) {
					k.Errorf("value %.60q came back from Get as %.60q", value, got)
				}
			}
		}},

	{"limits/appends", `An append of MaxBatch entries or MaxEntry bytes is accepted, in one entry or many, and drivers accept Slack more; anything larger is ErrTooLarge and writes nothing.`,
		func(k *kit) {
			s := k.open()
			many := slices.Repeat([]string{"x"}, store.MaxBatch)
			k.append(s, "many", 0, many...)
			k.holds(s, "many", many...)
			sizes := []int{store.MaxEntry - 1, store.MaxEntry}
			if _, wrapper := s.(store.Wrapper); !wrapper {
				sizes = append(sizes, store.MaxEntry+store.Slack)
			}
			var want []string
			for i, size := range sizes {
				want = append(want, strings.Repeat(string(rune('a'+i)), size))
				k.append(s, "large", uint64(i), want[i])
			}
			k.holds(s, "large", want...)
			full := slices.Repeat([]string{strings.Repeat("f", store.MaxEntry/store.MaxBatch)}, store.MaxBatch)
			k.append(s, "full", 0, full...)
			k.holds(s, "full", full...)

			over := bytes.Repeat([]byte("o"), store.MaxEntry+store.Slack+1)
			for name, entries := range map[string][][]byte{
				"one entry over the limit":         {over},
				"two entries together over it":     {over[:store.MaxEntry], over[:store.Slack+1]},
				"a small and a large entry":        {[]byte("x"), over},
				"one entry more than MaxBatch":     slices.Repeat([][]byte{[]byte("x")}, store.MaxBatch+1),
				"an entry far over the limit":      {make([]byte, 8<<20)},
				"many more entries than MaxBatch":  slices.Repeat([][]byte{{}}, 10*store.MaxBatch),
				"a full batch of too much in each": slices.Repeat([][]byte{over[:64<<10]}, store.MaxBatch),
			} {
				_, err := s.Append(k.ctx, "over", 0, entries...)
				k.want(err, store.ErrTooLarge, "Append of %s", name)
			}
			k.holds(s, "over")
			if names := k.names(s, "n"); len(names) != 0 {
				k.Errorf("a refused append created a journal: Journals yields %q", names)
			}
		}},

	{"limits/values", `A value of MaxEntry bytes is accepted, and drivers accept Slack more; anything larger is ErrTooLarge and writes nothing.`,
		func(k *kit) {
			s := k.open()
			sizes := []int{store.MaxEntry}
			if _, wrapper := s.(store.Wrapper); !wrapper {
				sizes = append(sizes, store.MaxEntry+store.Slack)
			}
			for _, size := range sizes {
				key, value := fmt.Sprintf("c%d", size), strings.Repeat("v", size)
				k.put(s, key, value, "")
				if k.value(s, key) != value {
					k.Errorf("a value of %d bytes came back changed", size)
				}
			}
			_, err := s.Put(k.ctx, "over", bytes.Repeat([]byte("o"), store.MaxEntry+store.Slack+1), "")
			k.want(err, store.ErrTooLarge, "Put of a value over the limit")
			if got := k.keys(s, "over", ""); len(got) != 0 {
				k.Errorf("a refused Put left the cell %q", got)
			}
		}},
}

// oddNames are names that file systems, databases and brokers tend to
// confuse, escape from or refuse.
func oddNames() []string {
	long := strings.Repeat("n", store.MaxName-1)
	return []string{
		"a", "A", "a.", "a..", "a ", " a", "a\x00", "a\x00b", "\x00", "a/b", "a//b", "a/./b", "a/../b", "/a", "a/", "./a", "..", ".", "../a", "../../../../etc/passwd",
		`a\b`, `..\a`, "C:", "con", "CON", "nul.txt", "a:b", "a*", "*", ">", "a.>", "a.*", "a.b", "a b", "a%2Fb", "a%2fb", "%", "%00", "a+b", "a_b", "a%b", "_", "__",
		"é", "e\u0301", "\u212a", "k", "K", "ß", "ss", "\xff", "\xfe\xff", "\xc3\x28", "\n", "\r\n", "\t", "'", `"`, `"; DROP TABLE journals; --`, "`", "$(id)", "${x}",
		"-", "--", "-rf", "~", "~root", "#", "?", "a?b", "a#b", "null", "0", "00", "-1", "🙂", "\u202e", "\u200b", "a\u200b",
		long + "1", long + "2", strings.Repeat("\xff", store.MaxName), strings.Repeat("/", store.MaxName), strings.Repeat("é", store.MaxName/2), strings.Repeat("\x00", store.MaxName),
	}
}

// of is what the cases write under a name: plain text, since odd bytes are
// another clause.
func contentOf(name string) string { return fmt.Sprintf("of %x", name) }

var nameCases = []testCase{
	{"names/journals", `Journal names of any bytes neither collide nor escape: each names its own journal and is enumerated as it was given.`,
		func(k *kit) {
			s := k.open()
			names := oddNames()
			for _, name := range names {
				k.append(s, name, 0, contentOf(name))
			}
			for _, name := range names {
				k.holds(s, name, contentOf(name))
			}
			slices.Sort(names)
			if got := k.names(s, ""); !slices.Equal(got, names) {
				for _, name := range names {
					if !slices.Contains(got, name) {
						k.Errorf("Journals does not yield %.40q", name)
					}
				}
				k.Fatalf("Journals yields %d names, want %d, in order", len(got), len(names))
			}
			if err := s.Drop(k.ctx, "a"); err != nil {
				k.Fatal(err)
			}
			for _, name := range names {
				if name != "a" { // which others begin with
					k.holds(s, name, contentOf(name))
				}
			}
		}},

	{"names/cells", `Keys of any bytes neither collide nor escape.`,
		func(k *kit) {
			s := k.open()
			names := oddNames()
			versions := map[string]store.Version{}
			for _, name := range names {
				versions[name] = k.put(s, name, contentOf(name), "")
			}
			for _, name := range names {
				if got := k.value(s, name); got != contentOf(name) {
					k.Errorf("cell %.40q holds %.40q", name, got)
				}
			}
			slices.Sort(names)
			if got := k.keys(s, "", ""); !slices.Equal(got, names) {
				k.Fatalf("List yields %d keys, want %d, in order: %.20q", len(got), len(names), got)
			}
			k.delete(s, "a", versions["a"]) // which others begin with
			for _, name := range names {
				if name != "a" && k.value(s, name) != contentOf(name) {
					k.Errorf("deleting a changed the cell %.40q", name)
				}
			}
		}},

	{"names/apart", `A journal and a cell of the same name have nothing to do with each other.`,
		func(k *kit) {
			s := k.open()
			for _, name := range []string{"n", "x/y"} {
				k.put(s, name, "cell", "")
				if got := k.names(s, ""); len(got) != 0 {
					k.Errorf("Journals yields %q where there are only cells", got)
				}
				k.append(s, name, 0, "journal")
				k.holds(s, name, "journal")
				if err := s.Drop(k.ctx, name); err != nil {
					k.Fatal(err)
				}
				if got := k.value(s, name); got != "cell" {
					k.Errorf("dropping the journal %q changed the cell to %q", name, got)
				}
			}
		}},

	{"names/refused", `An empty or over-long name and an empty append are ErrInvalid in every call: the call is wrong, and repeating it does not help.`,
		func(k *kit) {
			s := k.open()
			for what, name := range map[string]string{"an empty name": "", "an over-long name": strings.Repeat("x", store.MaxName+1)} {
				_, err := s.Append(k.ctx, name, 0, []byte("x"))
				k.want(err, store.ErrInvalid, "Append to %s", what)
				k.want(k.readErr(s, name), store.ErrInvalid, "Read of %s", what)
				k.want(s.Drop(k.ctx, name), store.ErrInvalid, "Drop of %s", what)
				_, err = s.Get(k.ctx, name)
				k.want(err, store.ErrInvalid, "Get of %s", what)
				_, err = s.Put(k.ctx, name, []byte("x"), "")
				k.want(err, store.ErrInvalid, "Put of %s", what)
				k.want(s.Delete(k.ctx, name, "v"), store.ErrInvalid, "Delete of %s", what)
			}
			_, err := s.Append(k.ctx, "j", 0)
			k.want(err, store.ErrInvalid, "Append of no entry")
		}},
}
