package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Error is an answer that refuses, in the form of OpenAI's interface.
type Error struct {
	Status  int    // of HTTP
	Message string // what was found and what is wanted
	Type    string // such as invalid_request_error
	Param   string // the field that is wrong, or ""
	Code    string // for programs, or ""
}

func (e *Error) Error() string { return e.Message }

// MarshalJSON writes {"error": {...}}; Param and Code are null when they are empty.
func (e *Error) MarshalJSON() ([]byte, error) {
	type body struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	return json.Marshal(map[string]body{"error": {e.Message, e.Type, orNull(e.Param), orNull(e.Code)}})
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// invalid refuses a field of a request.
func invalid(param, format string, args ...any) *Error {
	return &Error{http.StatusBadRequest, fmt.Sprintf(format, args...), "invalid_request_error", param, ""}
}

// unsupported refuses a field that would change the answer and that the server cannot honour.
func unsupported(param, why string) *Error {
	return &Error{http.StatusBadRequest, fmt.Sprintf("%s is not supported: %s", param, why), "invalid_request_error",
		param, "unsupported_parameter"}
}

// failed reports what the server could not do.
func failed(err error) *Error {
	return &Error{http.StatusInternalServerError, err.Error(), "server_error", "", "internal_error"}
}

// The refusals that have no field.
var (
	errKey = &Error{http.StatusUnauthorized, "missing or wrong API key; want the header Authorization: Bearer KEY",
		"invalid_request_error", "", "invalid_api_key"}
	errDraining = &Error{http.StatusServiceUnavailable, "the server is shutting down; ask another one", "server_error", "",
		"shutting_down"}
	errTimeout = &Error{http.StatusGatewayTimeout, "the request took longer than the server's limit", "server_error", "",
		"timeout"}
	errGone  = &Error{statusGone, "the client closed the connection", "server_error", "", "client_closed"}
	errMedia = &Error{http.StatusUnsupportedMediaType, "want the header Content-Type: application/json",
		"invalid_request_error", "", "unsupported_media_type"}
)

// statusGone is nginx's code for a client that has gone; it is in logs and metrics only.
const statusGone = 499

// errPanicked is what a client is told of a fault of the server's own; the log has the rest.
var errPanicked = errors.New("the server failed; its log says more under the request's id")
