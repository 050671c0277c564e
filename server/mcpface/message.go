package mcpface

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/perdure/perdure/internal/strict"
)

// nullID is the id of an answer to something without one.
var nullID = json.RawMessage("null")

// parse reads a message. What is none is an error of the protocol, and comes with the
// id of the call to which it is the answer, null if that is not known.
func parse(data []byte) (m jsonrpc.Message, id json.RawMessage, wrong *jsonrpc.Error) {
	id = nullID
	refuse := func(code int64, format string, args ...any) (jsonrpc.Message, json.RawMessage, *jsonrpc.Error) {
		return nil, id, &jsonrpc.Error{Code: code, Message: fmt.Sprintf(format, args...)}
	}
	if !utf8.Valid(data) || !json.Valid(data) {
		return refuse(jsonrpc.CodeParseError, "a message is one JSON object, and this is not JSON")
	}
	all, err := object(data)
	if params := all["params"]; len(params) > 0 && params[0] == '{' {
		_, err = object(params) // the arguments of a tool are the tool's to check
	}
	if err != nil {
		return refuse(jsonrpc.CodeInvalidRequest, "%v", err)
	}
	switch given := all["id"]; {
	case len(given) == 0:
	case string(given) != "null":
		if _, err := strconv.ParseInt(string(given), 10, 54); err != nil && given[0] != '"' {
			return refuse(jsonrpc.CodeInvalidRequest, "the id has to be a text or an integer")
		}
		id = given
	case all["method"] != nil: // only an answer to what had no id has null
		return refuse(jsonrpc.CodeInvalidRequest, "the id has to be a text or an integer, and a notification has none")
	}
	if strict.Depth(data) > strict.MaxDepth {
		return refuse(jsonrpc.CodeInvalidRequest, "it is nested deeper than %d", strict.MaxDepth)
	}
	if string(all["jsonrpc"]) != `"2.0"` {
		return refuse(jsonrpc.CodeInvalidRequest, `jsonrpc has to be "2.0"`)
	}
	if _, call := all["method"]; !call && all["result"] == nil && all["error"] == nil {
		return refuse(jsonrpc.CodeInvalidRequest, "the method is missing")
	}
	if m, err = jsonrpc.DecodeMessage(data); err != nil {
		return refuse(jsonrpc.CodeInvalidRequest, "%v", err)
	}
	return m, id, nil
}

// object returns the members of an object.
func object(data []byte) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		if t == json.Delim('[') {
			err = errors.New("several messages at once, which newer versions of the protocol do not have; send one")
		}
		return nil, cmp.Or(err, errors.New("it has to be an object"))
	}
	all := map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		name, _ := t.(string)
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		if _, twice := all[name]; err == nil && twice {
			err = fmt.Errorf("the name %.80q occurs twice", name)
		}
		if err != nil {
			return nil, err
		}
		all[name] = value
	}
	return all, nil
}

// refusal returns the JSON of the answer to what is no message, or no call that is known.
func refusal(id json.RawMessage, wrong *jsonrpc.Error) []byte {
	data, err := json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   *jsonrpc.Error  `json:"error"`
	}{"2.0", id, wrong})
	if err != nil {
		panic(err) // id is JSON
	}
	return data
}

// withCode gives an answer that is an error without a code the one it should have: the
// parameters could not be read, or the request is not allowed now.
func withCode(m jsonrpc.Message) jsonrpc.Message {
	r, ok := m.(*jsonrpc.Response)
	if !ok || r.Error == nil {
		return m
	}
	if wire, ok := errors.AsType[*jsonrpc.Error](r.Error); ok && wire.Code != 0 {
		return m
	}
	text, code := r.Error.Error(), int64(jsonrpc.CodeInvalidRequest)
	if strings.HasPrefix(text, "handling '") {
		code = jsonrpc.CodeInvalidParams
	}
	return &jsonrpc.Response{ID: r.ID, Error: &jsonrpc.Error{Code: code, Message: text}}
}
