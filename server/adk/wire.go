package adk

// wireEvent is an event as clients of the Agent Development Kit know it.
type wireEvent struct {
	ID           string       `json:"id"`
	InvocationID string       `json:"invocationId"`
	Author       string       `json:"author"` // an agent, or user
	Timestamp    float64      `json:"timestamp"`
	Content      *wireContent `json:"content,omitempty"`
	Partial      bool         `json:"partial,omitempty"`
	TurnComplete bool         `json:"turnComplete,omitempty"`
	LongRunning  []string     `json:"longRunningToolIds,omitempty"`
	Usage        *wireUsage   `json:"usageMetadata,omitempty"`
	ErrorCode    string       `json:"errorCode,omitempty"`
	ErrorMessage string       `json:"errorMessage,omitempty"`
	FinishReason string       `json:"finishReason,omitempty"`
	ModelVersion string       `json:"modelVersion,omitempty"`
	Actions      wireActions  `json:"actions"`
}

type wireContent struct {
	Role  string     `json:"role"` // user or model
	Parts []wirePart `json:"parts"`
}

type wirePart struct {
	Text     string        `json:"text,omitempty"`
	Thought  bool          `json:"thought,omitempty"`
	Data     *wireData     `json:"inlineData,omitempty"`
	File     *wireFile     `json:"fileData,omitempty"`
	Call     *wireCall     `json:"functionCall,omitempty"`
	Response *wireResponse `json:"functionResponse,omitempty"`
}

type wireData struct {
	MIME string `json:"mimeType"`
	Data []byte `json:"data"`
	Name string `json:"displayName,omitempty"`
}

type wireFile struct {
	MIME string `json:"mimeType,omitempty"`
	URI  string `json:"fileUri"`
	Name string `json:"displayName,omitempty"`
}

type wireCall struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Args any    `json:"args"` // always set: clients read it unchecked
}

type wireResponse struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Response any    `json:"response"`
}

type wireUsage struct {
	Prompt     int64 `json:"promptTokenCount"`
	Candidates int64 `json:"candidatesTokenCount"`
	Total      int64 `json:"totalTokenCount"`
	Cached     int64 `json:"cachedContentTokenCount,omitempty"`
	Thoughts   int64 `json:"thoughtsTokenCount,omitempty"`
}

type wireActions struct {
	StateDelta    map[string]any              `json:"stateDelta"`
	ArtifactDelta map[string]any              `json:"artifactDelta"`
	Transfer      string                      `json:"transferToAgent,omitempty"`
	Escalate      bool                        `json:"escalate,omitempty"`
	EndOfAgent    bool                        `json:"endOfAgent,omitempty"`
	Confirmations map[string]wireConfirmation `json:"requestedToolConfirmations,omitempty"`
}

type wireConfirmation struct {
	Hint      string `json:"hint"`
	Confirmed bool   `json:"confirmed"`
	Payload   any    `json:"payload,omitempty"`
}
