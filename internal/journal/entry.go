package journal

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strconv"
)

// Format is the version of the format that this binary writes.
const Format = 1

// ErrNewer means that an entry was written by a newer binary.
var ErrNewer = errors.New("written by a newer version")

// Kind says what an entry records.
type Kind string

// The kinds that the worker of a run writes, under the epoch of its claim.
const (
	Claimed     Kind = "claimed"     // a worker took the run over
	Step        Kind = "step"        // outcome of a step or cleanup
	Attempt     Kind = "attempt"     // failed attempt of a step that is tried again
	Intent      Kind = "intent"      // an at-most-once step is about to start
	Asked       Kind = "asked"       // an ask is open
	Timer       Kind = "timer"       // a sleep has begun
	Waiting     Kind = "waiting"     // a receive waits for its signal
	Received    Kind = "received"    // a receive took a signal that had arrived before
	Took        Kind = "took"        // a queued input was taken, or there was none
	Emitted     Kind = "emitted"     // an event that the flow defines
	Planned     Kind = "planned"     // the names of the steps to come
	Spawned     Kind = "spawned"     // a child is about to be started
	Dumped      Kind = "dumped"      // deps saved while a leaf runs
	Closed      Kind = "closed"      // a branch failed, and those beside it are closed
	Problem     Kind = "problem"     // something went wrong that does not stop the run
	Suspended   Kind = "suspended"   // every frame waits; the worker has let go
	Released    Kind = "released"    // the worker has let go; the run can be taken over at once
	Blocked     Kind = "blocked"     // the code no longer fits the journal
	Quarantined Kind = "quarantined" // the run killed too many workers
	Ended       Kind = "ended"       // output, failure or cancellation
)

// The kinds that any node may write. A worker that meets them absorbs them.
const (
	Created  Kind = "created"  // the first entry of a thread
	Queued   Kind = "queued"   // an input: a new run, or steering for the active one
	Answered Kind = "answered" // the answer to an ask
	Expired  Kind = "expired"  // an ask has expired
	Progress Kind = "progress" // an update on an open ask
	Fired    Kind = "fired"    // a timer, or the time limit of a receive, has run out
	Signal   Kind = "signal"   // an external event
	Cancel   Kind = "cancel"   // the run is to be cancelled
	Paused   Kind = "paused"
	Resumed  Kind = "resumed"
	Retried  Kind = "retried" // a failed run continues; its failed tail is void
	Metadata Kind = "metadata"
	Nudge    Kind = "nudge" // makes a late writer conflict; its name may say that a pass only waits
)

// The kinds that fence: a worker that meets one gives up the run.
const (
	Forked  Kind = "forked"  // a fork begins after an entry of another thread
	Rewound Kind = "rewound" // the thread is again as it was at an earlier sequence
	Erased  Kind = "erased"  // the thread is about to be dropped
	Moved   Kind = "moved"   // the thread continues in another store; nothing follows here
)

var fences = map[Kind]bool{Forked: true, Rewound: true, Erased: true, Moved: true}

var workers = map[Kind]bool{
	Claimed: true, Step: true, Attempt: true, Intent: true, Asked: true, Timer: true,
	Waiting: true, Received: true, Took: true, Emitted: true, Planned: true, Spawned: true, Dumped: true,
	Closed: true, Problem: true, Suspended: true, Released: true, Blocked: true, Quarantined: true, Ended: true,
}

var open = map[Kind]bool{
	Created: true, Queued: true, Answered: true, Expired: true, Progress: true, Fired: true,
	Signal: true, Cancel: true, Paused: true, Resumed: true, Retried: true, Metadata: true, Nudge: true,
}

// kinds holds the known kinds by their JSON.
var kinds = func() map[string]Kind {
	byJSON := map[string]Kind{}
	for _, set := range []map[Kind]bool{workers, open, fences} {
		for k := range set {
			byJSON[`"`+string(k)+`"`] = k
		}
	}
	return byJSON
}()

// Known reports whether this binary knows the kind.
func (k Kind) Known() bool { return workers[k] || open[k] || fences[k] }

// Open reports whether any node may write the kind, so that the worker of the
// run absorbs it instead of being fenced by it.
func (k Kind) Open() bool { return open[k] }

// Hash is a link of the chain.
type Hash [sha256.Size]byte

var strictBase64 = base64.RawURLEncoding.Strict()

func (h Hash) String() string { return base64.RawURLEncoding.EncodeToString(h[:]) }

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hash) UnmarshalText(text []byte) error {
	// The decoder skips line breaks; the result is then too short.
	n, err := strictBase64.Decode(h[:], text)
	if err == nil && n != len(h) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// Entry is one entry of a thread's journal.
type Entry struct {
	Seq   uint64 // its place in the journal; not in its bytes
	Kind  Kind
	ID    string // random, so that no two entries are equal
	Time  int64  // Unix microseconds, by the clock of its writer
	Run   uint64 // the sequence of the entry that queued the run; 0 for the thread
	Epoch uint64 // of the claim under which a worker wrote it
	Path  string // of the node in the run's tree
	Body  json.RawMessage
	Hash  Hash

	// Texts holds the texts that its edits produced. It is not part of its bytes;
	// see [Thread.Texts].
	Texts map[string]Item

	made bool // EncodeBody has written the body, so that it is valid JSON

	// What Keep has parsed: only a value and its Took, or the whole body.
	value json.RawMessage
	took  int64
	read  *Body
}

// NewID returns a random id of 96 bits.
func NewID() string {
	var b [12]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

const (
	bodyMark = `,"b":`
	hashMark = `,"h":"`
	hashSize = 43 // SHA-256 in base64
	tailSize = len(hashMark) + hashSize + len(`"}`)
	headRoom = 120 // for the header, except the path
)

// chain returns the hash of an entry that follows the one with hash prev.
func chain(prev Hash, header, body []byte) (h Hash) {
	return link(prev, header, sha256.Sum256(body))
}

// link is chain for a body given by its SHA-256.
func link(prev Hash, header []byte, sum Hash) Hash {
	var room [256]byte // most headers are shorter
	b := append(room[:0], prev[:]...)
	b = append(b, header...)
	return sha256.Sum256(append(b, sum[:]...))
}

// Encode returns the bytes of an entry that follows the one with hash prev, and sets
// the entry's own hash.
func (e *Entry) Encode(prev Hash) []byte {
	body := e.Body
	if len(body) == 0 {
		body = json.RawMessage("{}")
	}
	b := e.begin(len(body))
	header := len(b)
	return e.end(prev, append(b, body...), header)
}

// EncodeBody is Encode with a body that is not encoded yet. It sets the entry's Body
// to a part of the bytes that it returns.
func (e *Entry) EncodeBody(prev Hash, body *Body) ([]byte, error) {
	b := e.begin(body.size())
	header := len(b)
	b, err := body.append(b)
	if err != nil {
		return nil, err
	}
	b = e.end(prev, b, header)
	e.Body, e.made = b[header:len(b)-tailSize:len(b)-tailSize], true
	return b, nil
}

// begin returns the bytes of an entry before its body, with room for a body of size
// bytes.
func (e *Entry) begin(size int) []byte {
	b := make([]byte, 0, headRoom+len(e.Path)+size+tailSize)
	b = append(b, `{"v":1,"k":"`...)
	b = append(b, e.Kind...)
	b = append(b, `","id":"`...)
	b = append(b, e.ID...)
	b = append(b, `","t":`...)
	b = strconv.AppendInt(b, e.Time, 10)
	if e.Run != 0 {
		b = append(b, `,"r":`...)
		b = strconv.AppendUint(b, e.Run, 10)
	}
	if e.Epoch != 0 {
		b = append(b, `,"e":`...)
		b = strconv.AppendUint(b, e.Epoch, 10)
	}
	if e.Path != "" {
		b = append(b, `,"p":`...)
		b = appendText(b, e.Path)
	}
	return append(b, bodyMark...)
}

// end sets the hash of an entry whose bytes so far are b, with the body from header
// on, and returns b completed.
func (e *Entry) end(prev Hash, b []byte, header int) []byte {
	e.Hash = chain(prev, b[:header], b[header:])
	b = append(b, hashMark...)
	b = base64.RawURLEncoding.AppendEncode(b, e.Hash[:])
	return append(b, `"}`...)
}

// appendText appends a text as json.Marshal writes it.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			text, _ := json.Marshal(s)
			return append(b, text...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// Decode reads the bytes of the entry at seq, which follows the one with hash prev.
// The entry retains data. Errors other than ErrNewer mean damage.
func Decode(prev Hash, seq uint64, data []byte) (Entry, error) {
	e := Entry{Seq: seq}
	header, err := e.header(data)
	if err != nil {
		return e, err
	}
	if len(data) < header+tailSize || !bytes.HasSuffix(data, []byte(`"}`)) {
		return e, errors.New("it is not a whole entry")
	}
	rest, tail := data[:len(data)-tailSize], data[len(data)-tailSize:]
	if string(tail[:len(hashMark)]) != hashMark {
		return e, errors.New("it has no hash at its end")
	}
	if err := e.Hash.UnmarshalText(tail[len(hashMark) : len(hashMark)+hashSize]); err != nil {
		return e, errors.New("its hash is not 32 bytes in base64")
	}
	e.Body = json.RawMessage(rest[header:])
	if e.Hash != chain(prev, rest[:header], e.Body) {
		return e, errors.New("its hash does not follow from its bytes and the entry before it")
	}
	return e, nil
}

// Peek reads an entry without checking its hash. It is for an entry whose
// predecessor is not known.
func Peek(seq uint64, data []byte) (Entry, error) {
	e := Entry{Seq: seq}
	header, err := e.header(data)
	if err != nil {
		return e, err
	}
	if len(data) < header+tailSize {
		return e, errors.New("it is not a whole entry")
	}
	tail := data[len(data)-tailSize:]
	if err := e.Hash.UnmarshalText(tail[len(hashMark) : len(hashMark)+hashSize]); err != nil {
		return e, errors.New("its hash is not 32 bytes in base64")
	}
	e.Body = json.RawMessage(data[header : len(data)-tailSize])
	return e, nil
}
