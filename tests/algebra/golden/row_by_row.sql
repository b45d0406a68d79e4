-- SELECT a + 1 AS a1, coalesce(c, '-') AS c FROM r WHERE b > 1 OR c IS NULL

-- @: rows, key _hw_key_1, changes signed
SELECT
  `a1` AS `a1`,
  `c` AS `c`,
  `_hw_key_1` AS `_hw_key_1`,
  `_hw_file` AS `_hw_file`,
  `_hw_position` AS `_hw_position`,
  `_hw_row` AS `_hw_row`,
  `_hw_w`
FROM (
  SELECT
    `a1`,
    `c`,
    `_hw_key_1`,
    `_hw_old__hw_key_1`,
    `_hw_file`,
    `_hw_position`,
    `_hw_row`,
    `_hw_w`
  FROM (
    SELECT
      `a1`,
      `c`,
      `_hw_key_1`,
      CAST(SUM(`_hw_w`) AS INT) AS `_hw_w`
    FROM (
      SELECT
        `a1` AS `a1`,
        `c_2` AS `c`,
        `r_rowid` AS `_hw_key_1`,
        `_hw_w`
      FROM (
        SELECT
          `a` + 1 AS `a1`,
          COALESCE(`c`, '-') AS `c_2`,
          `r_rowid`,
          `_hw_w`
        FROM (
          SELECT
            `a`,
            `b`,
            `c`,
            `r_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `a` AS `a`,
              `b` AS `b`,
              `c` AS `c`,
              `rowid` AS `r_rowid`,
              `_hw_w`
            FROM `r@delta`
          ) AS _t
          WHERE
            `b` > 1 OR `c` IS NULL
        ) AS _t
      ) AS _t
    ) AS _t
    GROUP BY
      `a1`,
      `c`,
      `_hw_key_1`
    HAVING
      SUM(`_hw_w`) <> 0
  ) AS _l
  LEFT JOIN (
    SELECT
      `_hw_key_1` AS `_hw_old__hw_key_1`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM `@@old`
  ) AS _r
    ON `_hw_key_1` IS NOT DISTINCT FROM `_hw_old__hw_key_1`
) AS _t
