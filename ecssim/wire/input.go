package wire

import "strings"

// protocol names the parameters that belong to the protocol and not to an
// action. They carry what authenticates the caller, so none of them is kept.
var protocol = map[string]bool{
	"Action": true, "Version": true, "Format": true, "Timestamp": true, "SignatureMethod": true,
	"SignatureVersion": true, "SignatureType": true, "SignatureNonce": true, "Signature": true,
	"AccessKeyId": true, "SecurityToken": true, "BearerToken": true,
}

// Input is the parameters of a request.
type Input struct {
	All    Parameters // as sent
	Sent   Parameters // without those of the protocol
	Params Parameters // without those that an empty value makes absent
	Format Format     // of the reply
}

// ReadInput merges the parameters of query and form; the query wins. With a
// refusal, too, it returns what could be read.
func ReadInput(m Message) (Input, *Refusal) {
	in := Input{All: Parameters{}, Sent: Parameters{}, Params: Parameters{}}
	var wrong *Refusal
	for _, raw := range []string{m.Form, m.query} {
		if no := in.All.merge(raw); no != nil {
			wrong = no
		}
	}
	for name, value := range in.All {
		if protocol[name] {
			continue
		}
		in.Sent[name] = value
		if value != "" || emptyCounts(name) {
			in.Params[name] = value
		}
	}
	no := in.readFormat(m)
	switch {
	case m.Method != "GET" && m.Method != "POST":
		no = Refuse(403, "UnsupportedHTTPMethod", "This http method %q is not supported: GET or POST.", m.Method)
	case m.cut:
		no = Refuse(400, "InvalidParameter", "The body is too large: at most %d bytes.", maxBody)
	case wrong != nil:
		no = wrong
	}
	return in, no
}

// readFormat reads what the reply is to be written in: what Format says, or
// XML without one. A request signed in headers, or that names its action there,
// gets JSON.
func (in *Input) readFormat(m Message) *Refusal {
	wanted, is := in.All["Format"]
	switch {
	case isACS3(m), in.All["Action"] == "" && m.Header["x-acs-action"] != "", strings.EqualFold(wanted, "JSON"):
		in.Format = formatJSON
	case !is || strings.EqualFold(wanted, "XML"):
		in.Format = formatXML
	default:
		in.Format = formatXML
		return Refuse(400, "InvalidParameter", "The specified parameter Format %q is not valid: JSON or XML.", wanted)
	}
	return nil
}

// ActionName returns the name and the version of the action that is asked for. They
// are in the parameters, or in headers if the request is signed there.
func (in Input) ActionName(m Message) (name, version string) {
	if name = in.All["Action"]; name != "" {
		return name, in.All["Version"]
	}
	return m.Header["x-acs-action"], m.Header["x-acs-version"]
}

// IsRead tells whether an action changes nothing.
func IsRead(action string) bool {
	return strings.HasPrefix(action, "Describe") || strings.HasPrefix(action, "List")
}
