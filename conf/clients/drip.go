// A drip from the relay, repeated until its outcome is known; README.md next to this file has the rule.
//
// Arguments: identity, recipient, public key. RELAY and TOKEN_FILE are in the environment.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// After this many attempts the last answer stands.
const attempts = 30

// A longer Retry-After is left to the caller.
const patience = 60

// Answer is what the relay says of an operation.
type Answer struct {
	TransactionHash string `json:"transaction_hash"`
	Error           struct {
		Reason string `json:"reason"`
	} `json:"error"`
}

// setting is what the environment has for a name, or what it is without.
func setting(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// send sends one request: its status, the seconds to wait, and the body of the answer.
func send(path string, body []byte, key string) (status, wait int, answer Answer, err error) {
	url := setting("RELAY", "http://127.0.0.1:8081") + path
	token, err := os.ReadFile(setting("TOKEN_FILE", ".portcullis/relay.token"))
	if err != nil {
		return
	}
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return
	}
	defer response.Body.Close()
	status = response.StatusCode
	if status == 202 || status == 504 {
		wait = 1
	}
	if seconds, mistake := strconv.Atoi(response.Header.Get("Retry-After")); mistake == nil {
		wait = seconds
	}
	err = json.NewDecoder(response.Body).Decode(&answer)
	return
}

// outcome sends an operation with its key until the answer is final.
func outcome(path string, body []byte, key string) (int, Answer, error) {
	for attempt := 1; ; attempt++ {
		status, wait, answer, err := send(path, body, key)
		if err != nil || wait == 0 || wait > patience || attempt == attempts {
			return status, answer, err
		}
		time.Sleep(time.Duration(wait) * time.Second)
	}
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: drip IDENTITY RECIPIENT PUBLIC_KEY")
	}
	body, err := json.Marshal(map[string]string{
		"identity": os.Args[1], "recipient": os.Args[2], "public_key": os.Args[3],
	})
	if err != nil {
		log.Fatal(err)
	}
	status, answer, err := outcome("/faucet-drip", body, "welcome-"+os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	said := answer.TransactionHash
	if status >= 300 {
		said = answer.Error.Reason
	}
	fmt.Println(status, said)
}
