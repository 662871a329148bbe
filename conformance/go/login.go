// Writes a record and reads it back on a listener that wants TLS, a certificate or a login.
//
//	login BOOTSTRAP TOPIC MECHANISM USER PASSWORD CA OWN
//
// MECHANISM is none, PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER, whose token stands in place
// of the password. CA and OWN are PEM files, or empty.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	bootstrap, topic := args[0], args[1]
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.AllowAutoTopicCreation(),
	}
	if mechanism := mechanismOf(args[2], args[3], args[4]); mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	if args[5] != "" {
		config, err := tlsOf(args[5], args[6])
		if err != nil {
			return err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	record := &kgo.Record{Topic: topic, Value: []byte(args[2])}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		return err
	}
	for {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("nothing was read: %w, %v", err, fetches.Errors())
		}
		for _, each := range fetches.Records() {
			fmt.Println(string(each.Value))
			return nil
		}
	}
}

func mechanismOf(name, user, password string) sasl.Mechanism {
	switch name {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: password}.AsMechanism()
	}
	return nil
}

func tlsOf(ca, own string) (*tls.Config, error) {
	text, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	config := &tls.Config{RootCAs: roots}
	if own != "" {
		pair, err := tls.LoadX509KeyPair(own, own)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
