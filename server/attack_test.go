package server_test

import (
	"strings"
	"testing"
)

// many returns a JSON list of n times the same.
func many(item string, n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
}

// An element of a list is worth three bytes of a body, and was a thousand times
// as much work.
func TestAttackListsOfObjectsAreBounded(t *testing.T) {
	s := newFuzzed(t)
	s.do("POST", "/v1/threads/t1/answers", `{"answers":`+many("{}", 1_000_000)+`}`).problem(400, "body")
	s.do("POST", "/v1/threads/t1/answers", `{"answers":`+many("{}", 1001)+`}`).problem(400, "invalid")
	s.do("POST", "/run", `{"appName":"asker","userId":"ann","sessionId":"t1","newMessage":{"parts":`+many("{}", 1_000_000)+`}}`).problem(400, "invalid")
	s.do("POST", "/run", `{"appName":"asker","userId":"ann","sessionId":"t1","newMessage":{"parts":[5]}}`).problem(400, "body")
}

