package serve

import "net/http"

// modelCard is an entry of /v1/models.
type modelCard struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Owner   string `json:"owned_by"`
	Length  int    `json:"max_model_len"` // tokens of prompt and answer together
}

func (s *Server) card() modelCard {
	return modelCard{s.o.Model, "model", s.created, "mkgen", s.o.Backend.KVTokens()}
}

// models lists the one model there is.
func (s *Server) models(w http.ResponseWriter, _ *http.Request) *Error {
	return writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []modelCard{s.card()}})
}

// model shows it.
func (s *Server) model(w http.ResponseWriter, r *http.Request) *Error {
	if name := r.PathValue("model"); name != s.o.Model {
		return s.missing(name)
	}
	return writeJSON(w, http.StatusOK, s.card())
}

// info gives the model's name as sglang does, from where its router has it.
func (s *Server) info(w http.ResponseWriter, _ *http.Request) *Error {
	return writeJSON(w, http.StatusOK, map[string]string{"served_model_name": s.o.Model})
}

// missing refuses another model.
func (s *Server) missing(name string) *Error {
	return &Error{http.StatusNotFound, "the model " + quoted(name) + " is not here; want " + quoted(s.o.Model),
		"invalid_request_error", "model", "model_not_found"}
}
