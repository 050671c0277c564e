package openai

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/perdure/perdure/llm"
)

type (
	part struct {
		Type       string `json:"type"`
		Text       string `json:"text,omitempty"`
		ImageURL   *image `json:"image_url,omitempty"`
		InputAudio *audio `json:"input_audio,omitempty"`
		File       *file  `json:"file,omitempty"`
	}
	image struct {
		URL string `json:"url"`
	}
	audio struct {
		Data   string `json:"data"`
		Format string `json:"format"`
	}
	file struct {
		Filename string `json:"filename"`
		FileData string `json:"file_data"`
	}
)

// content returns what a user said: a single text as a string, which every server
// understands, anything else as parts.
func (s *server) content(parts []llm.Part) (any, *llm.Error) {
	var out []part
	for _, p := range parts {
		switch {
		case p.Call != nil || p.Result != nil || p.Reasoning != nil:
			return nil, invalid("a message of the user has a part that is neither text nor media")
		case p.Media != nil:
			m, err := s.media(p.Media)
			if err != nil {
				return nil, err
			}
			out = append(out, m)
		case p.Text != "":
			out = append(out, part{Type: "text", Text: p.Text})
		}
	}
	switch {
	case len(out) == 0:
		return "", nil
	case len(out) == 1 && out[0].Type == "text":
		return out[0].Text, nil
	}
	return out, nil
}

// show returns media after a line that says what they are.
func (s *server) show(title string, media []llm.Media) ([]part, *llm.Error) {
	if len(media) == 0 {
		return nil, nil
	}
	out := []part{{Type: "text", Text: title}}
	for i := range media {
		p, err := s.media(&media[i])
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func (s *server) media(m *llm.Media) (part, *llm.Error) {
	switch {
	case len(m.Data) > 0:
		return data(m), nil
	case m.URL != "" && m.Image():
		return part{Type: "image_url", ImageURL: &image{m.URL}}, nil
	case m.URL != "" && s.compatible:
		return part{Type: "file", File: &file{filename(m), m.URL}}, nil
	case m.URL != "":
		return part{}, invalid("OpenAI takes images at a URL, but no file of type %s: send its bytes", m.MIME)
	case m.Blob != "":
		return part{}, invalid("the media in blob %s were not loaded: put the bytes into Data", m.Blob)
	}
	return part{}, invalid("media without data and URL")
}

// data returns media by their bytes.
func data(m *llm.Media) part {
	mime := cmp.Or(m.MIME, http.DetectContentType(m.Data))
	base, _, _ := strings.Cut(mime, ";")
	encoded := base64.StdEncoding.EncodeToString(m.Data)
	url := "data:" + mime + ";base64," + encoded
	switch {
	case strings.HasPrefix(base, "image/"):
		return part{Type: "image_url", ImageURL: &image{url}}
	case base == "audio/wav" || base == "audio/x-wav" || base == "audio/wave":
		return part{Type: "input_audio", InputAudio: &audio{encoded, "wav"}}
	case base == "audio/mpeg" || base == "audio/mp3":
		return part{Type: "input_audio", InputAudio: &audio{encoded, "mp3"}}
	case (strings.HasPrefix(base, "text/") || base == "application/json") && utf8.Valid(m.Data):
		// Few models understand text in a file.
		return part{Type: "text", Text: filename(m) + ":\n" + string(m.Data)}
	}
	return part{Type: "file", File: &file{filename(m), url}}
}

// filename returns the name that servers demand, even if the file has none.
func filename(m *llm.Media) string {
	if m.Name == "" && strings.HasPrefix(m.MIME, "application/pdf") {
		return "file.pdf"
	}
	return cmp.Or(m.Name, "file")
}

// images adds images that the model made. OpenAI's own models make none in this
// protocol; those behind OpenRouter do.
func (r *reply) images(raw string) error {
	if raw == "" || raw == "null" {
		return nil
	}
	var all []struct {
		ImageURL image `json:"image_url"`
	}
	if err := json.Unmarshal([]byte(raw), &all); err != nil {
		return nonsense("the images in the stream are not a list")
	}
	for _, i := range all {
		m := llm.Media{URL: i.ImageURL.URL}
		if head, body, ok := strings.Cut(i.ImageURL.URL, ";base64,"); ok && strings.HasPrefix(head, "data:") {
			data, err := base64.StdEncoding.DecodeString(body)
			if err != nil {
				return nonsense("an image in the stream is not base64")
			}
			m = llm.Media{MIME: strings.TrimPrefix(head, "data:"), Data: data}
		}
		if m.URL == "" && len(m.Data) == 0 {
			return nonsense("the stream has an image without bytes")
		}
		if err := r.emit(llm.Delta{Part: r.part(), Media: &m}); err != nil {
			return err
		}
	}
	return nil
}
