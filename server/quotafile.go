package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/strict"
)

// quotaFile has the quotas of tenants in a file.
type quotaFile struct {
	path string
	log  *slog.Logger

	mu     sync.Mutex
	looked time.Time
	data   []byte                      // of the last valid file
	own    map[string]map[string]int64 // in it
	err    error                       // why the current file is not valid
}

var _ Quotas = (*quotaFile)(nil)

// QuotaFile returns the quotas in a file, a JSON object by tenant:
//
//	{"acme": {"threads": 100000, "bytes": 50000000000, "runs": 500},
//	 "trial": {"threads": 100, "starts": 10, "streams": 5}}
//
// Quotas that a tenant's object does not name are those of all other tenants; 0 means no
// limit. Changes take effect within a second. While the file is missing or invalid, the
// last valid quotas remain, and this is logged to log unless it is nil.
func QuotaFile(path string, log *slog.Logger) (Quotas, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	f := &quotaFile{path: path, log: log}
	f.refresh()
	return f, f.err
}

// Of implements Quotas.
func (f *quotaFile) Of(tenant string, standard Quota) Quota {
	for name, n := range f.current()[tenant] {
		_ = standard.Set(name, n) // it was checked
	}
	return standard
}

// Tenants implements Quotas.
func (f *quotaFile) Tenants() []string { return slices.Sorted(maps.Keys(f.current())) }

func (f *quotaFile) current() map[string]map[string]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if since := time.Since(f.looked); since >= fileInterval || since < 0 {
		f.refresh()
	}
	return f.own
}

// refresh reads the file.
func (f *quotaFile) refresh() {
	f.looked = time.Now()
	data, err := readSmall(f.path)
	if err == nil && f.own != nil && bytes.Equal(data, f.data) {
		f.err = nil
		return
	}
	var own map[string]map[string]int64
	if err == nil {
		own, err = parseQuotas(data)
	}
	if err != nil {
		err = fmt.Errorf("server: the quota file %s: %w", f.path, err)
	}
	switch {
	case err != nil && f.own != nil && (f.err == nil || f.err.Error() != err.Error()):
		f.log.Error("the quota file cannot be used; the quotas that it last had still count", "error", err)
	case err == nil && f.err != nil:
		f.log.Info("the quota file can be used again", "path", f.path)
	}
	if f.err = err; err == nil {
		f.data, f.own = data, own
	}
}

// readSmall reads a file of at most fileMost bytes that others cannot write.
func readSmall(path string) ([]byte, error) {
	if err := guarded(path); err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, fileMost+1))
	if err == nil && len(data) > fileMost {
		err = fmt.Errorf("it has more than %d bytes", fileMost)
	}
	return data, err
}

func parseQuotas(data []byte) (map[string]map[string]int64, error) {
	own := map[string]map[string]int64{}
	err := decodeStrict(data, func(r *strict.Reader) error {
		if r.Kind() != '{' {
			return errors.New("it must be a JSON object")
		}
		return r.Object(func(tenant string) error {
			if err := checkName("tenant", tenant); tenant != "" && err != nil {
				return err
			}
			own[tenant] = map[string]int64{}
			if r.Kind() != '{' {
				return fmt.Errorf("the quota of %q must be a JSON object", tenant)
			}
			return r.Object(func(name string) error {
				raw, err := r.Raw()
				if err != nil {
					return err
				}
				var n int64
				if _, err := fmt.Sscan(string(raw), &n); err != nil || fmt.Sprint(n) != string(raw) {
					return fmt.Errorf("tenant %q: %s is %.40s, which is not a whole number", tenant, name, raw)
				}
				own[tenant][name] = n
				if err := new(Quota).Set(name, n); err != nil {
					return fmt.Errorf("tenant %q: %w", tenant, err)
				}
				return nil
			})
		})
	})
	return own, err
}
