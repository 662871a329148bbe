-- The total of each customer, updated with every order.
--
--   headwater pipeline run examples/pipelines/totals.sql

CREATE STREAM orders (customer STRING, product STRING, price DOUBLE) FROM TOPIC orders;

INSERT INTO TOPIC totals WITH (key = 'customer', mode = 'update')
SELECT customer, count(*) AS orders, round(sum(price), 2) AS spent
FROM orders
GROUP BY customer;
