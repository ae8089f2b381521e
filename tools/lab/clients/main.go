// Prints what franz-go or Sarama reads of partition 0 of topics, as consume.py does: main CLIENT HOST:PORT TOPIC...
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 3 * time.Second

var errNoProgress = errors.New("NoProgress")

type result struct {
	rows    hash.Hash
	records int
}

type header struct {
	key   string
	value []byte
}

func main() {
	read := map[string]func(string, string, *result) error{"franz-go": franz, "sarama": readSarama}[os.Args[1]]
	for _, topic := range os.Args[3:] {
		found := &result{rows: sha256.New()}
		end := ""
		if err := read(os.Args[2], topic, found); err != nil {
			end = fmt.Sprintf(", \"error\": %q", class(err))
		}
		fmt.Printf("{\"topic\": %q, \"records\": %d, \"sha256\": \"%x\"%s}\n", topic, found.records, found.rows.Sum(nil), end)
	}
}

// The last cause, without the addresses of structs: it has no name of a host or a topic.
func class(err error) string {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	text, _, _ := strings.Cut(err.Error(), " sarama.")
	return text
}

func text(data []byte) string {
	if data == nil {
		return "-"
	}
	return hex.EncodeToString(data)
}

func (r *result) add(offset int64, when time.Time, key, value []byte, headers []header) {
	pairs := make([]string, len(headers))
	for i, one := range headers {
		pairs[i] = hex.EncodeToString([]byte(one.key)) + "=" + text(one.value)
	}
	timestamp := int64(-1)
	if !when.IsZero() {
		timestamp = when.UnixMilli()
	}
	fmt.Fprintf(r.rows, "%d\t%d\t%s\t%s\t%s\n", offset, timestamp, text(key), text(value), strings.Join(pairs, ","))
	r.records++
}

func franz(bootstrap, topic string, found *result) error {
	start := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}
	// Control records are requested so that a log which ends with them has an end.
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumePartitions(start), kgo.KeepControlRecords())
	if err != nil {
		return err
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(context.Background(), topic)
	if err != nil {
		return err
	}
	end, _ := ends.Lookup(topic, 0)
	for next := int64(0); next < end.Offset; {
		wait, cancel := context.WithTimeout(context.Background(), patience)
		fetches := client.PollFetches(wait)
		cancel()
		fetches.EachRecord(func(record *kgo.Record) {
			next = record.Offset + 1
			if record.Attrs.IsControl() {
				return
			}
			headers := make([]header, len(record.Headers))
			for i, one := range record.Headers {
				headers[i] = header{one.Key, one.Value}
			}
			found.add(record.Offset, record.Timestamp, record.Key, record.Value, headers)
		})
		if err := fetches.Err(); errors.Is(err, context.DeadlineExceeded) {
			return errNoProgress
		} else if err != nil {
			return err
		}
	}
	return nil
}

func readSarama(bootstrap, topic string, found *result) error {
	config := sarama.NewConfig()
	config.Consumer.Return.Errors = true
	client, err := sarama.NewClient([]string{bootstrap}, config)
	if err != nil {
		return err
	}
	defer client.Close()
	end, err := client.GetOffset(topic, 0, sarama.OffsetNewest)
	if err != nil {
		return err
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	defer partition.AsyncClose()
	for next := int64(0); next < end; {
		select {
		case message := <-partition.Messages():
			next = message.Offset + 1
			headers := make([]header, len(message.Headers))
			for i, one := range message.Headers {
				headers[i] = header{string(one.Key), one.Value}
			}
			found.add(message.Offset, message.Timestamp, message.Key, message.Value, headers)
		case failed := <-partition.Errors():
			return failed.Err
		case <-time.After(patience):
			return errNoProgress
		}
	}
	return nil
}
