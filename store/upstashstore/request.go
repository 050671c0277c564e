package upstashstore

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/perdure/perdure/store"
)

// Reasons why a database cannot hold a store. Errors of Open and of later calls match
// them.
var (
	// ErrToken: the service does not accept the token, or it allows no writes.
	ErrToken = errors.New("upstashstore: the service does not accept the token")

	// ErrNoStore: the database holds no store of this prefix, and Options.Existing
	// is set.
	ErrNoStore = errors.New("upstashstore: there is no store")

	// ErrEvicts: the database may remove keys when it is full, and journals with
	// them.
	ErrEvicts = errors.New("upstashstore: the database evicts keys")

	// ErrThrottled: the service refuses requests because there are too many, for
	// the moment or for the plan. It also matches store.ErrUnavailable.
	ErrThrottled = fmt.Errorf("%w: upstashstore: too many requests", store.ErrUnavailable)

	// errRefused: the service answered that it did not execute a command.
	errRefused = errors.New("the service refused the command")
)

// replies says what the errors mean that the service answers, by what they contain.
var replies = []struct {
	has   string
	is    error
	means string
}{
	{"WRONGPASS", ErrToken, "; set UPSTASH_REDIS_REST_TOKEN to that of the database"},
	{"NOAUTH", ErrToken, "; set UPSTASH_REDIS_REST_TOKEN to that of the database"},
	{"NOPERM", ErrToken, " for all that a store needs; use one that may read and write"},
	{"requests limit exceeded", ErrThrottled, "; nothing was written; wait, or choose a larger plan"},
	{"request limit exceeded", ErrThrottled, "; nothing was written; wait, or choose a larger plan"},
	{"max request size exceeded", store.ErrTooLarge, ": upstashstore: the plan of the database does not allow requests of this size"},
	{"max single record size exceeded", store.ErrTooLarge, ": upstashstore: the plan of the database does not allow values of this size"},
	{"quota exceeded", store.ErrFull, ": upstashstore: the database is full; nothing was written; erase threads, or choose a larger plan"},
	{"OOM", store.ErrFull, ": upstashstore: the database is full; nothing was written; erase threads, or give it more memory"},
	{"READONLY", store.ErrUnavailable, ": upstashstore: the server accepts no writes now; nothing was written"},
	{"LOADING", store.ErrUnavailable, ": upstashstore: the server is not ready yet; nothing was written"},
}

// eval evaluates a script that returns a list of strings.
func (d *database) eval(ctx context.Context, script string, keys []string, args ...string) ([]string, error) {
	command := append([]string{"EVAL", script, strconv.Itoa(len(keys))}, keys...)
	answer, err := d.do(ctx, append(command, args...)...)
	if err != nil {
		return nil, err
	}
	list, _ := answer.([]any)
	said := make([]string, len(list))
	for i, item := range list {
		var ok bool
		if said[i], ok = item.(string); !ok {
			return nil, fmt.Errorf("upstashstore: a script returned %T, not a string", item)
		}
	}
	if len(said) == 0 {
		return nil, fmt.Errorf("upstashstore: a script returned %T, not a list", answer)
	}
	return said, nil
}

// do executes a command, once.
func (d *database) do(ctx context.Context, command ...string) (any, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.timeout, fmt.Errorf("the service did not answer within %v", d.timeout))
	defer cancel()
	body, err := json.Marshal(command)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: upstashstore: %w", store.ErrInvalid, err)
	}
	req.Header.Set("Authorization", "Bearer "+d.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := d.client.Do(req)
	if err != nil {
		return nil, unanswered(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, unanswered(err)
	}
	var answer struct {
		Result any
		Error  *string
	}
	if err := json.Unmarshal(data, &answer); resp.StatusCode == http.StatusOK && answer.Error == nil {
		if err != nil {
			return nil, unanswered(fmt.Errorf("the answer is not JSON: %w", err))
		}
		return answer.Result, nil
	}
	said := resp.Status
	if answer.Error != nil {
		said = *answer.Error
	}
	return nil, refused(resp.StatusCode, said)
}

// refused returns the error of a request that was answered with an error.
func refused(status int, said string) error {
	for _, r := range replies {
		if strings.Contains(said, r.has) {
			return fmt.Errorf("%w%s: %s", r.is, r.means, said)
		}
	}
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return fmt.Errorf("%w; set UPSTASH_REDIS_REST_TOKEN to that of the database: %s", ErrToken, said)
	case status == http.StatusTooManyRequests:
		return fmt.Errorf("%w; try again later: %s", ErrThrottled, said)
	case status == http.StatusRequestEntityTooLarge:
		return fmt.Errorf("%w: upstashstore: the service does not accept requests of this size: %s", store.ErrTooLarge, said)
	case status >= 500, status == http.StatusRequestTimeout:
		return fmt.Errorf("%w: upstashstore: the service cannot answer now; a write may have happened: %s", store.ErrUnavailable, said)
	case status >= 300 && status < 400:
		return fmt.Errorf("%w: upstashstore: the host redirects to another address; name that in the URL: %s", store.ErrInvalid, said)
	}
	return fmt.Errorf("upstashstore: %w: %s", errRefused, said)
}

// unanswered returns the error of a request without an answer.
func unanswered(err error) error {
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) {
		return fmt.Errorf("%w: upstashstore: the certificate of the service is not trusted; add its authority to those of this machine: %w", store.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: upstashstore: no answer from the service; a write may have happened: %w", store.ErrUnavailable, err)
}
