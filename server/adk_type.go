package server

// adkEvent is an event as clients of the Agent Development Kit know it.
type adkEvent struct {
	ID           string      `json:"id"`
	InvocationID string      `json:"invocationId"`
	Author       string      `json:"author"` // an agent, or user
	Timestamp    float64     `json:"timestamp"`
	Content      *adkContent `json:"content,omitempty"`
	Partial      bool        `json:"partial,omitempty"`
	TurnComplete bool        `json:"turnComplete,omitempty"`
	LongRunning  []string    `json:"longRunningToolIds,omitempty"`
	Usage        *adkUsage   `json:"usageMetadata,omitempty"`
	ErrorCode    string      `json:"errorCode,omitempty"`
	ErrorMessage string      `json:"errorMessage,omitempty"`
	FinishReason string      `json:"finishReason,omitempty"`
	ModelVersion string      `json:"modelVersion,omitempty"`
	Actions      adkActions  `json:"actions"`
}

type adkContent struct {
	Role  string    `json:"role"` // user or model
	Parts []adkPart `json:"parts"`
}

type adkPart struct {
	Text     string       `json:"text,omitempty"`
	Thought  bool         `json:"thought,omitempty"`
	Data     *adkData     `json:"inlineData,omitempty"`
	File     *adkFile     `json:"fileData,omitempty"`
	Call     *adkCall     `json:"functionCall,omitempty"`
	Response *adkResponse `json:"functionResponse,omitempty"`
}

type adkData struct {
	MIME string `json:"mimeType"`
	Data []byte `json:"data"`
	Name string `json:"displayName,omitempty"`
}

type adkFile struct {
	MIME string `json:"mimeType,omitempty"`
	URI  string `json:"fileUri"`
	Name string `json:"displayName,omitempty"`
}

type adkCall struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Args any    `json:"args"` // always there: clients read it without looking
}

type adkResponse struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Response any    `json:"response"`
}

type adkUsage struct {
	Prompt     int64 `json:"promptTokenCount"`
	Candidates int64 `json:"candidatesTokenCount"`
	Total      int64 `json:"totalTokenCount"`
	Cached     int64 `json:"cachedContentTokenCount,omitempty"`
	Thoughts   int64 `json:"thoughtsTokenCount,omitempty"`
}

type adkActions struct {
	StateDelta    map[string]any             `json:"stateDelta"`
	ArtifactDelta map[string]any             `json:"artifactDelta"`
	Transfer      string                     `json:"transferToAgent,omitempty"`
	Escalate      bool                       `json:"escalate,omitempty"`
	EndOfAgent    bool                       `json:"endOfAgent,omitempty"`
	Confirmations map[string]adkConfirmation `json:"requestedToolConfirmations,omitempty"`
}

type adkConfirmation struct {
	Hint      string `json:"hint"`
	Confirmed bool   `json:"confirmed"`
	Payload   any    `json:"payload,omitempty"`
}
